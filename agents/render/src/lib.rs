//! Validated input to desired objects and configuration text. Pure and infallible.
