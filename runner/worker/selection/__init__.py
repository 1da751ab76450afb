"""Steps that judge documents and keep some of them: labels, classifiers, selection, overlaps."""
