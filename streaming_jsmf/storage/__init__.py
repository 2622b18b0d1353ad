"""Local files and objects behind URLs: one way to name, open, list, read and write them.

``paths`` has the functions for both, and is where to start reading: what is named by a string and what by a
``StorePath``, and how a write is there whole or not at all. ``replace`` has directories that appear and are replaced
in one step, and clears what a killed process left of that. ``objects`` knows what object stores lack (directories,
renames) and what takes its place. ``arrays`` has Zarr arrays with a digest each, ``provenance`` the versions behind
them. Nothing here knows what the files mean. Imports ``errors`` alone of this package.
"""
