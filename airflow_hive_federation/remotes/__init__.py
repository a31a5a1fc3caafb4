"""Links tables and databases of other metastores and catalogs under local names, as remotes."""
