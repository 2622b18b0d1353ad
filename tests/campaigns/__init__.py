"""Hundreds of seeded random attacks: each command ends in time, within its memory limit, and reports what is wrong."""
