"""The index kinds that a user names; each builds from Arrow columns and is ``Evidence`` when
read back."""
