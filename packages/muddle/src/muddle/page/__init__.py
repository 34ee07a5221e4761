"""Plots and the report of a fit, findings about tables, drift, and the frame of HTML pages."""
