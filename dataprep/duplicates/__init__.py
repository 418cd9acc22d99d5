"""Find images that occur more than once: with the same bytes, or with perceptual hashes that differ in few bits."""
