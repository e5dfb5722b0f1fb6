"""Reproduce the paper: each table and figure is a file of settings and one command, `fairmf reproduce NAME`."""
