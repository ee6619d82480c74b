"""The reference interpreter: what the model means, element by element; slow and obviously right."""
