//! Numbers of text files.
//!
//! Stricter than Rust's parser: `nan`, `inf`, missing-value words and commas are refused by kind (cases G04, G09).

/// Why a text is no usable number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberFault {
    Missing,
    NotFinite,
    Comma,
    NotANumber,
}

/// Longest number with a decimal comma, bytes.
const MAX_COMMA_NUMBER: usize = 64;

/// Reads a number; with `decimal_comma`, `1,5` is 1.5 and `1.5` is still 1.5.
#[inline]
pub(super) fn parse_number(text: &[u8], decimal_comma: bool) -> Result<f64, NumberFault> {
    let text = text.trim_ascii();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let unsigned = text.strip_prefix(b"-").unwrap_or(digits);
    // Words that a float parser accepts (nan, inf, infinity) begin with a letter, behind at most a sign.
    if !unsigned.first().is_some_and(|b| b.is_ascii_digit() || *b == b'.' || *b == b',') {
        return Err(no_number(text));
    }
    match fast_float2::parse::<f64, _>(digits) {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err(NumberFault::NotFinite),
        Err(_) if !digits.contains(&b',') => Err(NumberFault::NotANumber),
        Err(_) if !decimal_comma => Err(NumberFault::Comma),
        Err(_) => parse_comma(digits),
    }
}

#[cold]
fn no_number(text: &[u8]) -> NumberFault {
    const MISSING: [&str; 8] = ["", "-", "na", "n/a", "null", "none", "nil", "#n/a"];
    const NOT_FINITE: [&str; 4] = ["nan", "inf", "infinity", "1.#inf"];
    let word = String::from_utf8_lossy(text).to_ascii_lowercase();
    if MISSING.contains(&word.as_str()) {
        NumberFault::Missing
    } else if NOT_FINITE.contains(&word.trim_start_matches(['+', '-'])) {
        NumberFault::NotFinite
    } else {
        NumberFault::NotANumber
    }
}

fn parse_comma(digits: &[u8]) -> Result<f64, NumberFault> {
    // A point beside the comma would be a thousands mark; which is which is not guessed.
    if digits.len() > MAX_COMMA_NUMBER || digits.contains(&b'.') {
        return Err(NumberFault::NotANumber);
    }
    let mut buffer = [0_u8; MAX_COMMA_NUMBER];
    let buffer = &mut buffer[..digits.len()];
    buffer.copy_from_slice(digits);
    buffer.iter_mut().filter(|b| **b == b',').for_each(|b| *b = b'.');
    match fast_float2::parse::<f64, _>(&*buffer) {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err(NumberFault::NotFinite),
        Err(_) => Err(NumberFault::NotANumber),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case G09: words that are legal floats are refused, each by its kind.
    #[test]
    fn case_g09_words_are_no_numbers() {
        for (text, want) in [
            ("NaN", NumberFault::NotFinite),
            ("nan", NumberFault::NotFinite),
            ("inf", NumberFault::NotFinite),
            ("-Infinity", NumberFault::NotFinite),
            ("+inf", NumberFault::NotFinite),
            ("1e999", NumberFault::NotFinite),
            ("NA", NumberFault::Missing),
            ("", NumberFault::Missing),
            ("  ", NumberFault::Missing),
            ("-", NumberFault::Missing),
            ("null", NumberFault::Missing),
            ("abc", NumberFault::NotANumber),
            ("1.2.3", NumberFault::NotANumber),
            ("1e", NumberFault::NotANumber),
            ("0x10", NumberFault::NotANumber),
            ("1_000", NumberFault::NotANumber),
            ("+-1", NumberFault::NotANumber),
            (".", NumberFault::NotANumber),
            ("1,5", NumberFault::Comma),
            ("1,234.5", NumberFault::Comma),
            (",5", NumberFault::Comma),
        ] {
            assert_eq!(parse_number(text.as_bytes(), false), Err(want), "{text:?}");
        }
    }

    #[test]
    fn numbers_are_exact() {
        for text in ["1.05236", " 143539993.3 ", "+7", "5e-324", "1.7976931348623157e308", "-0.5", ".5", "3."]
        {
            let want: f64 = text.trim().parse().unwrap();
            assert_eq!(parse_number(text.as_bytes(), false), Ok(want), "{text}");
        }
    }

    /// Case G04: a decimal comma is read with the option only, and never guessed.
    #[test]
    fn case_g04_decimal_comma() {
        for (text, want) in
            [("10,20", 10.2), ("4,5", 4.5), ("0,1", 0.1), ("-1,5", -1.5), ("7", 7.0), ("1.5", 1.5)]
        {
            assert_eq!(parse_number(text.as_bytes(), true), Ok(want), "{text}");
        }
        for text in ["1.234,5", "1,234.5", "1,2,3"] {
            assert_eq!(parse_number(text.as_bytes(), true), Err(NumberFault::NotANumber), "{text}");
        }
    }
}
