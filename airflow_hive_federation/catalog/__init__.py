"""Opens the catalogs of remotes: Hive metastores and other catalogs behind small role protocols."""
