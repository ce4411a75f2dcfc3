//! Calendar text to a civil date and time of day, by hand for speed.
//!
//! Layouts: year first (`-`, `/` or `.` between, or eight digits), `D.M.YYYY`, `M/D/YYYY`; then a clock `H:M[:S[.f]]`,
//! `HHMMSS[mmm]`, with AM or PM; then `Z`, `UTC`, `GMT` or an offset. Two-digit years and `D-M-YYYY` are refused as
//! ambiguous. No zone is applied here.

const HOUR_NS: i64 = 3_600_000_000_000;
const MINUTE_NS: i64 = 60_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// A calendar time as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) struct Civil {
    /// Days since 1970-01-01.
    pub(in crate::load) days: i64,
    /// Nanoseconds since midnight.
    pub(in crate::load) nanos: i64,
    /// East of UTC.
    pub(in crate::load) offset_seconds: Option<i32>,
    /// No time of day was written.
    pub(in crate::load) date_only: bool,
}

/// Reads a date, or a date and time. The error says what is wrong.
pub(in crate::load) fn parse(text: &[u8]) -> Result<Civil, &'static str> {
    let mut cursor = Cursor { rest: text };
    let (days, compact_clock) = cursor.date()?;
    if let Some(nanos) = compact_clock {
        let offset_seconds = cursor.suffix()?;
        return Ok(Civil { days, nanos, offset_seconds, date_only: false });
    }
    if cursor.rest.is_empty() {
        return Ok(Civil { days, nanos: 0, offset_seconds: None, date_only: true });
    }
    match cursor.rest[0] {
        b'T' | b't' => cursor.rest = &cursor.rest[1..],
        b' ' => cursor.spaces(),
        _ => return Err("text follows the date"),
    }
    let nanos = cursor.clock()?;
    let offset_seconds = cursor.suffix()?;
    Ok(Civil { days, nanos, offset_seconds, date_only: false })
}

/// Reads a time of day with an optional offset; the days are 0.
pub(in crate::load) fn parse_clock(text: &[u8]) -> Result<Civil, &'static str> {
    let mut cursor = Cursor { rest: text };
    let nanos = cursor.clock()?;
    let offset_seconds = cursor.suffix()?;
    Ok(Civil { days: 0, nanos, offset_seconds, date_only: false })
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    /// Up to 18 leading digits as a number, with their count.
    #[inline]
    fn digits(&mut self) -> (i64, usize) {
        let mut value = 0_i64;
        let mut count = 0;
        while let Some(b) = self.rest.get(count).filter(|b| b.is_ascii_digit()) {
            if count == 18 {
                break;
            }
            value = value * 10 + i64::from(b - b'0');
            count += 1;
        }
        self.rest = &self.rest[count..];
        (value, count)
    }

    #[inline]
    fn eat(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((&first, rest)) if first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn spaces(&mut self) {
        while self.eat(b' ') {}
    }

    /// Days since 1970, and the nanoseconds of the day if the date ran straight into a clock.
    #[inline]
    fn date(&mut self) -> Result<(i64, Option<i64>), &'static str> {
        let (first, count) = self.digits();
        match count {
            4 => {
                let between = self.rest.first().copied().unwrap_or(0);
                if !matches!(between, b'-' | b'/' | b'.') {
                    return Err("after the year comes `-`, `/` or `.`");
                }
                self.rest = &self.rest[1..];
                let (month, month_digits) = self.digits();
                if !self.eat(between) {
                    return Err("the date has two different separators");
                }
                let (day, day_digits) = self.digits();
                check_digits(month_digits, day_digits)?;
                Ok((days_of(first, month, day)?, None))
            }
            8 => Ok((days_of(first / 10_000, first / 100 % 100, first % 100)?, None)),
            14 => {
                let date = first / 1_000_000;
                let days = days_of(date / 10_000, date / 100 % 100, date % 100)?;
                let clock = first % 1_000_000;
                Ok((days, Some(nanos_of(clock / 10_000, clock / 100 % 100, clock % 100, 0)?)))
            }
            1 | 2 => {
                let between = self.rest.first().copied().unwrap_or(0);
                if !matches!(between, b'/' | b'.') {
                    return Err("day and month cannot be told apart; write YYYY-MM-DD");
                }
                self.rest = &self.rest[1..];
                let (second, second_digits) = self.digits();
                if !self.eat(between) {
                    return Err("the date has two different separators");
                }
                let (year, year_digits) = self.digits();
                check_digits(second_digits, second_digits)?;
                if year_digits != 4 {
                    return Err("the year needs four digits");
                }
                let (day, month) = if between == b'.' { (first, second) } else { (second, first) };
                Ok((days_of(year, month, day)?, None))
            }
            _ => Err("no date layout begins like this"),
        }
    }

    #[inline]
    fn clock(&mut self) -> Result<i64, &'static str> {
        let (hour, count) = self.digits();
        let (mut hour, minute, second, fraction) = match count {
            1 | 2 => {
                if !self.eat(b':') {
                    return Err("after the hour comes `:`");
                }
                let minute = self.two_digits()?;
                let mut second = 0;
                let mut fraction = 0;
                if self.eat(b':') {
                    second = self.two_digits()?;
                    if self.eat(b'.') || self.eat(b',') {
                        let (value, digits) = self.digits();
                        if digits == 0 || digits > 9 {
                            return Err("a fraction of a second has one to nine digits");
                        }
                        fraction = value * 10_i64.pow(9 - digits as u32);
                    }
                }
                (hour, minute, second, fraction)
            }
            4 => (hour / 100, hour % 100, 0, 0),
            6 => (hour / 10_000, hour / 100 % 100, hour % 100, 0),
            9 => (hour / 10_000_000, hour / 100_000 % 100, hour / 1000 % 100, hour % 1000 * 1_000_000),
            _ => return Err("no time of day begins like this"),
        };
        self.spaces();
        if let [a @ (b'A' | b'a' | b'P' | b'p'), b'M' | b'm', rest @ ..] = self.rest {
            if !(1..=12).contains(&hour) {
                return Err("with AM or PM the hour is 1 to 12");
            }
            hour = hour % 12 + if a.eq_ignore_ascii_case(&b'P') { 12 } else { 0 };
            self.rest = rest;
            self.spaces();
        }
        nanos_of(hour, minute, second, fraction)
    }

    #[inline]
    fn two_digits(&mut self) -> Result<i64, &'static str> {
        match self.digits() {
            (value, 2) => Ok(value),
            _ => Err("minutes and seconds have two digits"),
        }
    }

    /// What follows the clock: nothing, `Z`, `UTC`, `GMT`, an offset, or `GMT` and an offset.
    #[inline]
    fn suffix(&mut self) -> Result<Option<i32>, &'static str> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let named = match self.rest {
            [b'Z' | b'z', rest @ ..] => {
                self.rest = rest;
                return if self.rest.is_empty() { Ok(Some(0)) } else { Err("text follows the time") };
            }
            [a, b, c, rest @ ..] if [*a, *b, *c].eq_ignore_ascii_case(b"UTC") => Some(rest),
            [a, b, c, rest @ ..] if [*a, *b, *c].eq_ignore_ascii_case(b"GMT") => Some(rest),
            _ => None,
        };
        if let Some(rest) = named {
            self.rest = rest;
            if rest.is_empty() {
                return Ok(Some(0));
            }
        }
        let sign = match self.rest.first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err("text follows the time that is no offset"),
        };
        self.rest = &self.rest[1..];
        let (value, count) = self.digits();
        let (hours, minutes) = match count {
            1 | 2 if self.eat(b':') => (value, self.two_digits()?),
            1 | 2 => (value, 0),
            4 => (value / 100, value % 100),
            _ => return Err("an offset is written +HH:MM, +HHMM or +HH"),
        };
        if !self.rest.is_empty() || hours > 18 || minutes > 59 {
            return Err("an offset is written +HH:MM, +HHMM or +HH, up to 18 hours");
        }
        Ok(Some(sign * (hours * 3600 + minutes * 60) as i32))
    }
}

fn check_digits(month: usize, day: usize) -> Result<(), &'static str> {
    if (1..=2).contains(&month) && (1..=2).contains(&day) {
        Ok(())
    } else {
        Err("month and day have one or two digits")
    }
}

#[inline]
fn nanos_of(hour: i64, minute: i64, second: i64, fraction: i64) -> Result<i64, &'static str> {
    if hour > 23 || minute > 59 || second > 59 {
        return Err("no such time of day");
    }
    Ok(hour * HOUR_NS + minute * MINUTE_NS + second * SECOND_NS + fraction)
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar.
///
/// Years are counted from March so that the leap day is a year's last, and in cycles of 400 years (146,097 days).
#[inline]
fn days_of(year: i64, month: i64, day: i64) -> Result<i64, &'static str> {
    const LENGTHS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if !(1..=12).contains(&month) {
        return Err("no such month");
    }
    let length = LENGTHS[month as usize - 1] + i64::from(leap && month == 2);
    if !(1..=length).contains(&day) {
        return Err("no such day");
    }
    let from_march = if month > 2 { year } else { year - 1 };
    let cycle = from_march.div_euclid(400);
    let year_of_cycle = from_march.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_cycle = year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100 + day_of_year;
    Ok(cycle * 146_097 + day_of_cycle - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_agree_with_jiff_over_six_centuries() {
        let epoch = jiff::civil::date(1970, 1, 1);
        let mut date = jiff::civil::date(1678, 1, 1);
        while date.year() < 2262 {
            let want = i64::from((date - epoch).get_days());
            let got = days_of(i64::from(date.year()), i64::from(date.month()), i64::from(date.day()));
            assert_eq!(got, Ok(want), "{date}");
            date = date.tomorrow().unwrap();
        }
    }

    #[test]
    fn clocks_are_read_alone() {
        for (text, want) in [
            ("09:30", 34_200),
            ("9:30", 34_200),
            ("09:30:15", 34_215),
            ("093015", 34_215),
            ("0930", 34_200),
            ("9:30 PM", 77_400),
        ] {
            assert_eq!(parse_clock(text.as_bytes()).map(|c| c.nanos / SECOND_NS), Ok(want), "{text}");
        }
        assert!(parse_clock(b"930").is_err());
        assert!(parse_clock(b"").is_err());
    }
}
