"""Never Give Up (Badia et al. 2020a): R2D2 that learns a family of exploring and exploiting policies."""
