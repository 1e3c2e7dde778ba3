"""The whole product as a person uses it: the script `loomlog`, a real folder, a real stack. Marker `stack`."""
