"""Lists of regions as pictures, meshes, statistics and files."""
