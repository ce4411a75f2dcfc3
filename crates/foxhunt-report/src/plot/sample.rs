//! Fewer points that look the same: per pixel column the lowest and the highest value, in their order.
//!
//! A column of a plot is a pixel or so wide, so nothing visible is lost and no extreme is hidden. What is drawn
//! with the points is not known here.

/// Indices of at most `2 * columns + 2` of `values` to draw: the first, the last, and the lowest and highest
/// finite value of each of `columns` equal ranges. Non-finite values are never chosen.
#[must_use]
pub fn min_max(values: &[f64], columns: usize) -> Vec<usize> {
    let finite = |i: &usize| values[*i].is_finite();
    if values.len() <= 2 * columns || columns == 0 {
        return (0..values.len()).filter(finite).collect();
    }
    let mut chosen = Vec::with_capacity(2 * columns + 2);
    chosen.push(0);
    for column in 0..columns {
        let range = column * values.len() / columns..(column + 1) * values.len() / columns;
        let mut ends: Option<(usize, usize)> = None;
        for i in range.filter(finite) {
            let (low, high) = ends.get_or_insert((i, i));
            if values[i] < values[*low] {
                *low = i;
            }
            if values[i] > values[*high] {
                *high = i;
            }
        }
        if let Some((low, high)) = ends {
            chosen.push(low.min(high));
            chosen.push(low.max(high));
        }
    }
    chosen.push(values.len() - 1);
    chosen.dedup();
    chosen.retain(finite);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_ends_and_extremes() {
        let mut values: Vec<f64> = (0..100_000).map(|i| f64::from(i % 97)).collect();
        values[50_001] = 1e6;
        values[70_003] = -1e6;
        let chosen = min_max(&values, 300);
        assert!(chosen.len() <= 602, "{}", chosen.len());
        assert!(chosen.windows(2).all(|w| w[0] < w[1]));
        for index in [0, 50_001, 70_003, 99_999] {
            assert!(chosen.contains(&index), "{index}");
        }
    }

    #[test]
    fn short_series_stay_whole_and_nan_is_left_out() {
        assert_eq!(min_max(&[1.0, f64::NAN, 3.0], 10), [0, 2]);
        assert_eq!(min_max(&[], 10), [0; 0]);
        let holes = vec![f64::NAN; 1000];
        assert!(min_max(&holes, 10).is_empty());
    }
}
