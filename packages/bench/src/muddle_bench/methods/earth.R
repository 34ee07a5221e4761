# Fits or asks a MARS model. Numbers travel as binary doubles, so that none is rounded.
#   Rscript earth.R fit FOLDER ROWS COLUMNS       x, y -> model.rds
#   Rscript earth.R predict FOLDER ROWS COLUMNS   x, model.rds -> predicted
arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[2]
rows <- as.integer(arguments[3])
columns <- as.integer(arguments[4])

read_numbers <- function(name, count) {
  readBin(file.path(folder, name), "double", n = count, size = 8, endian = "little")
}

suppressPackageStartupMessages(library(earth))
x <- matrix(read_numbers("x", rows * columns), nrow = rows, ncol = columns, byrow = TRUE)
colnames(x) <- paste0("x", seq_len(columns))
model_file <- file.path(folder, "model.rds")

if (arguments[1] == "fit") {
  model <- earth(x, read_numbers("y", rows))
  saveRDS(model, model_file)
} else {
  predicted <- as.numeric(predict(readRDS(model_file), x))
  writeBin(predicted, file.path(folder, "predicted"), size = 8, endian = "little")
}
