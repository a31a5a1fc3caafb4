"""Record writers turn records into rows, one writer per format."""
