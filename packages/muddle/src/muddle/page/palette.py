"""Okabe and Ito's colours, which people of every kind of colour vision tell apart."""

VERMILLION, BLUE, GREEN, PINK = "#d55e00", "#0072b2", "#009e73", "#cc79a7"
SKY, ORANGE, YELLOW, GREY = "#56b4e9", "#e69f00", "#f0e442", "#8a8a8a"
# What figures draw in, and pages replace by their own colours, in dark mode as well.
INK, PAPER, LINE = "#000000", "#ffffff", "#d0d0d0"
