"""What a remote can be: Hive metastores and other catalogs behind small role protocols."""
