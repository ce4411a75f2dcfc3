//! Numbers as people read them: thousands separators, a sign where it matters, few digits.
//!
//! The terminal gets plain ASCII; the page gets the typographic minus sign through [`typographic`]. What a
//! number means is not known here.

use foxhunt::evaluation::Measure;

/// `12345.678` with 1 decimal is `12,345.7`. Not for values that may be infinite or NaN: those give `n/a`.
#[must_use]
pub fn grouped(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "n/a".into();
    }
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
    // A rounded zero has no sign.
    let negative = value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b));
    let mut out = String::with_capacity(text.len() + text.len() / 3 + 1);
    if negative {
        out.push('-');
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A whole count with thousands separators.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// As [`grouped`], with a plus sign on positive values.
#[must_use]
pub fn signed(value: f64, decimals: usize) -> String {
    let text = grouped(value, decimals);
    let zero = !text.bytes().any(|b| (b'1'..=b'9').contains(&b));
    if value > 0.0 && !zero && value.is_finite() { format!("+{text}") } else { text }
}

/// A share as a signed percentage without the sign "%": 0.0123 is `+1.23`. From a
/// million on in powers of ten.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.is_finite() && percent.abs() >= 1e6 {
        return format!("{percent:+.1e}");
    }
    let decimals = match percent.abs() {
        x if x >= 1000.0 => 0,
        x if x >= 100.0 => 1,
        _ => 2,
    };
    signed(percent, decimals)
}

/// The measure through `format`, or `n/a`.
#[must_use]
pub fn or_na(measure: &Measure, format: impl FnOnce(f64) -> String) -> String {
    measure.value().map_or_else(|| "n/a".into(), format)
}

/// The measure through `format`, or `n/a (reason)`.
#[must_use]
pub fn or_reason(measure: &Measure, format: impl FnOnce(f64) -> String) -> String {
    match (measure.value(), measure.reason()) {
        (Some(value), _) => format(value),
        (None, reason) => format!("n/a ({})", reason.unwrap_or("not known")),
    }
}

/// The same text with a real minus sign before digits, for the page.
#[must_use]
pub fn typographic(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 4);
    let mut chars = text.chars().peekable();
    let mut previous = ' ';
    while let Some(c) = chars.next() {
        let before_digit = chars.peek().is_some_and(char::is_ascii_digit);
        let starts = !previous.is_ascii_alphanumeric();
        out.push(if c == '-' && before_digit && starts { '\u{2212}' } else { c });
        previous = c;
    }
    out
}

/// A number with about three significant digits for an axis or a small table: `0.00123`, `12.3`, `4,560`.
#[must_use]
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return "n/a".into();
    }
    let size = value.abs();
    if size == 0.0 {
        return "0".into();
    }
    if !(1e-4..1e9).contains(&size) {
        return format!("{value:.2e}");
    }
    let decimals = (2 - size.log10().floor() as i32).clamp(0, 6) as usize;
    let text = grouped(value, decimals);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_signs() {
        assert_eq!(grouped(1_234_567.891, 2), "1,234,567.89");
        assert_eq!(grouped(-999.5, 1), "-999.5");
        assert_eq!(grouped(-0.001, 2), "0.00");
        assert_eq!(grouped(999.999, 2), "1,000.00");
        assert_eq!(grouped(0.0, 0), "0");
        assert_eq!(count(3_600_000), "3,600,000");
        assert_eq!(count(7), "7");
        assert_eq!(signed(0.004, 2), "0.00");
        assert_eq!(signed(0.005_1, 2), "+0.01");
        assert_eq!(percent(0.0123), "+1.23");
        assert_eq!(percent(-12.345), "-1,234");
        assert_eq!(percent(1.5), "+150.0");
        assert_eq!(percent(-3e30), "-3.0e32");
        assert_eq!(short(0.001_234), "0.00123");
        assert_eq!(short(4560.4), "4,560");
        assert_eq!(short(12.0), "12");
        assert_eq!(short(1e-9), "1.00e-9");
        assert_eq!(typographic("-1.5 to -2, a-b 2017-01-02"), "\u{2212}1.5 to \u{2212}2, a-b 2017-01-02");
    }

    #[test]
    fn nothing_prints_nan() {
        for planted in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for text in [grouped(planted, 2), signed(planted, 1), percent(planted), short(planted)] {
                assert_eq!(text, "n/a");
            }
        }
        assert_eq!(or_reason(&Measure::undefined("no trade"), percent), "n/a (no trade)");
        assert_eq!(or_na(&Measure::of(0.5), percent), "+50.00");
    }
}
