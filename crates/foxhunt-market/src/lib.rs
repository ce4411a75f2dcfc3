//! Bar files to checked bars to features; fill rules, portfolio and ratios, in f64.
