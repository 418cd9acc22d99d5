"""Images as bytes: read headers, validate, decode, downscale. No file is opened here."""
