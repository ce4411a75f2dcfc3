//! Time stamps of text and number columns to nanoseconds UTC.
//!
//! What kind of stamp a file has is settled by its first row; a later row of another kind is an error. Calendar text
//! is read by hand ([`calendar`]), anything with a zone in brackets by `jiff`. Where a zone turns clocks back, a
//! local time without an offset is refused rather than guessed.

pub(super) mod calendar;

use jiff::civil;
use jiff::tz::{AmbiguousOffset, TimeZone};

use super::number;
use crate::error::{MarketError, Place};
use calendar::Civil;

const DAY_NS: i128 = 86_400_000_000_000;

/// Unit of an integer epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpochUnit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

impl EpochUnit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds since 1970",
            Self::Millis => "milliseconds since 1970",
            Self::Micros => "microseconds since 1970",
            Self::Nanos => "nanoseconds since 1970",
        }
    }

    pub(super) fn nanos(self) -> i64 {
        match self {
            Self::Seconds => 1_000_000_000,
            Self::Millis => 1_000_000,
            Self::Micros => 1_000,
            Self::Nanos => 1,
        }
    }

    /// The unit by magnitude: 10^11 seconds are the year 5138, 10^11 milliseconds are March 1973, and so on.
    pub(super) fn of(value: i64) -> Self {
        match value.unsigned_abs() {
            0..100_000_000_000 => Self::Seconds,
            100_000_000_000..100_000_000_000_000 => Self::Millis,
            100_000_000_000_000..100_000_000_000_000_000 => Self::Micros,
            _ => Self::Nanos,
        }
    }
}

/// Smallest first epoch, seconds either side of 1970: below it stand row numbers, not times.
const SMALLEST_FIRST_EPOCH: u64 = 100_000_000;

/// How the stamps of one file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeKind {
    Epoch(EpochUnit),
    Calendar { with_offset: bool },
}

/// Why a stamp is refused, without its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TimeFault {
    Missing,
    Bad(String),
    Unit { was: EpochUnit, now: EpochUnit },
    Skipped(String),
    Ambiguous(String),
}

/// Reads the stamps of one file.
#[derive(Clone, Debug)]
pub(super) struct TimeReader {
    pub(super) kind: TimeKind,
    zone: Option<TimeZone>,
    zone_name: String,
}

/// Looks a zone up; none for UTC.
pub(super) fn find_zone(name: &str) -> Result<Option<TimeZone>, MarketError> {
    if ["utc", "etc/utc", "gmt", "z"].contains(&name.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    TimeZone::get(name).map(Some).map_err(|_| MarketError::UnknownTimezone { zone: name.into() })
}

impl TimeReader {
    /// Settles the kind from the text of the first row; a pair has its date here.
    pub(super) fn probe(text: &[u8], zone_name: &str) -> Result<Result<Self, TimeFault>, MarketError> {
        let zone = find_zone(zone_name)?;
        let kind = match probe_kind(text.trim_ascii()) {
            Ok(kind) => kind,
            Err(fault) => return Ok(Err(fault)),
        };
        Ok(Ok(Self { kind, zone, zone_name: zone_name.into() }))
    }

    /// A reader for integer epochs whose unit the first value settles.
    pub(super) fn for_epochs(first: i64, zone_name: &str) -> Result<Result<Self, TimeFault>, MarketError> {
        let zone = find_zone(zone_name)?;
        let kind = match first_epoch(first) {
            Ok(unit) => TimeKind::Epoch(unit),
            Err(fault) => return Ok(Err(fault)),
        };
        Ok(Ok(Self { kind, zone, zone_name: zone_name.into() }))
    }

    /// A reader for local calendar times that come as numbers.
    pub(super) fn for_local(zone_name: &str) -> Result<Self, MarketError> {
        Ok(Self {
            kind: TimeKind::Calendar { with_offset: false },
            zone: find_zone(zone_name)?,
            zone_name: zone_name.into(),
        })
    }

    /// Words for the data report.
    pub(super) fn describe(&self) -> String {
        match self.kind {
            TimeKind::Epoch(unit) => unit.name().into(),
            TimeKind::Calendar { with_offset: true } => "calendar time with offset".into(),
            TimeKind::Calendar { with_offset: false } => {
                format!("calendar time without offset, read as {}", self.zone_name)
            }
        }
    }

    /// Whether stamps carry no offset and are read in the zone set.
    pub(super) fn is_local(&self) -> bool {
        self.kind == TimeKind::Calendar { with_offset: false }
    }

    /// Nanoseconds UTC of one stamp.
    #[inline]
    pub(super) fn parse(&self, text: &[u8]) -> Result<i64, TimeFault> {
        let text = text.trim_ascii();
        match self.kind {
            TimeKind::Epoch(unit) => parse_epoch(text, unit),
            TimeKind::Calendar { .. } => match calendar::parse(text) {
                Ok(civil) => self.resolve(civil),
                Err(reason) => parse_general(text).ok_or_else(|| fault(text, reason)),
            },
        }
    }

    /// Nanoseconds UTC of a date and a time of day in two columns.
    pub(super) fn parse_pair(&self, date: &[u8], time: &[u8]) -> Result<i64, TimeFault> {
        let (date, time) = (date.trim_ascii(), time.trim_ascii());
        let day = calendar::parse(date).map_err(|reason| fault(date, reason))?;
        if !day.date_only {
            return Err(TimeFault::Bad("the date column holds a time of day, beside a time column".into()));
        }
        let clock = calendar::parse_clock(time).map_err(|reason| fault(time, reason))?;
        self.resolve(Civil { days: day.days, ..clock })
    }

    /// Nanoseconds UTC of an integer epoch.
    pub(super) fn epoch(&self, value: i64) -> Result<i64, TimeFault> {
        match self.kind {
            TimeKind::Epoch(unit) => epoch_nanos(value, unit),
            TimeKind::Calendar { .. } => Err(TimeFault::Bad("a number among calendar times".into())),
        }
    }

    /// Nanoseconds UTC of nanoseconds that count local time.
    pub(super) fn local_nanos(&self, local: i128, date_only: bool) -> Result<i64, TimeFault> {
        self.resolve(Civil {
            days: i64::try_from(local.div_euclid(DAY_NS)).map_err(|_| out_of_range())?,
            nanos: i64::try_from(local.rem_euclid(DAY_NS)).map_err(|_| out_of_range())?,
            offset_seconds: None,
            date_only,
        })
    }

    #[inline]
    fn resolve(&self, civil: Civil) -> Result<i64, TimeFault> {
        let local = i128::from(civil.days) * DAY_NS + i128::from(civil.nanos);
        let utc = match (civil.offset_seconds, &self.zone) {
            (Some(offset), _) => local - i128::from(offset) * 1_000_000_000,
            (None, None) => local,
            (None, Some(zone)) => self.in_zone(local, civil.date_only, zone)?,
        };
        i64::try_from(utc).map_err(|_| out_of_range())
    }

    fn in_zone(&self, local: i128, date_only: bool, zone: &TimeZone) -> Result<i128, TimeFault> {
        // Read the local time as if it were UTC to get its calendar fields, then ask the zone.
        let as_utc = jiff::Timestamp::from_nanosecond(local).map_err(|_| out_of_range())?;
        let fields: civil::DateTime = TimeZone::UTC.to_datetime(as_utc);
        let candidates = zone.to_ambiguous_timestamp(fields);
        let resolved = match candidates.offset() {
            AmbiguousOffset::Unambiguous { .. } => candidates.compatible(),
            // A date means the first instant of its day.
            _ if date_only => candidates.compatible(),
            AmbiguousOffset::Gap { .. } => return Err(TimeFault::Skipped(self.zone_name.clone())),
            AmbiguousOffset::Fold { .. } => return Err(TimeFault::Ambiguous(self.zone_name.clone())),
        };
        resolved.map(|t| t.as_nanosecond()).map_err(|_| out_of_range())
    }
}

impl TimeFault {
    pub(super) fn into_error(self, place: Place, value: String) -> MarketError {
        match self {
            Self::Missing => MarketError::MissingValue { place, value },
            Self::Bad(reason) => MarketError::BadTime { place, value, reason },
            Self::Unit { was, now } => {
                MarketError::TimeUnitChanged { place, value, was: was.name(), now: now.name() }
            }
            Self::Skipped(zone) => MarketError::TimeSkipped { place, value, zone },
            Self::Ambiguous(zone) => MarketError::TimeAmbiguous { place, value, zone },
        }
    }
}

fn probe_kind(text: &[u8]) -> Result<TimeKind, TimeFault> {
    match calendar::parse(text) {
        Ok(civil) => return Ok(TimeKind::Calendar { with_offset: civil.offset_seconds.is_some() }),
        Err(_) if parse_general(text).is_some() => return Ok(TimeKind::Calendar { with_offset: true }),
        Err(reason) => {
            let number = text.strip_prefix(b"-").unwrap_or(text);
            if !number.first().is_some_and(u8::is_ascii_digit)
                || !number.iter().all(|b| b.is_ascii_digit() || *b == b'.')
            {
                return Err(fault(text, reason));
            }
        }
    }
    let (whole, _) = split_epoch(text)?;
    first_epoch(whole).map(TimeKind::Epoch)
}

fn first_epoch(value: i64) -> Result<EpochUnit, TimeFault> {
    if value.unsigned_abs() < SMALLEST_FIRST_EPOCH {
        return Err(TimeFault::Bad("too small for seconds since 1970".into()));
    }
    Ok(EpochUnit::of(value))
}

#[inline]
fn parse_epoch(text: &[u8], unit: EpochUnit) -> Result<i64, TimeFault> {
    let (whole, fraction) = split_epoch(text)?;
    let nanos = epoch_nanos(whole, unit)?;
    if fraction.is_empty() {
        return Ok(nanos);
    }
    // Digits behind the point beyond the nanosecond are cut.
    let mut scale = unit.nanos();
    let mut more = 0_i64;
    for digit in fraction {
        scale /= 10;
        more += i64::from(digit - b'0') * scale;
    }
    if text.starts_with(b"-") {
        more = -more;
    }
    nanos.checked_add(more).ok_or_else(out_of_range)
}

#[inline]
fn epoch_nanos(value: i64, unit: EpochUnit) -> Result<i64, TimeFault> {
    let now = EpochUnit::of(value);
    if now != unit {
        return Err(TimeFault::Unit { was: unit, now });
    }
    value.checked_mul(unit.nanos()).ok_or_else(out_of_range)
}

/// The whole number and the digits behind the point.
#[inline]
fn split_epoch(text: &[u8]) -> Result<(i64, &[u8]), TimeFault> {
    let bad = || fault(text, "it is neither a calendar time nor a whole number");
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let point = digits.iter().position(|&b| b == b'.').unwrap_or(digits.len());
    let (whole, fraction) = (&digits[..point], digits.get(point + 1..).unwrap_or_default());
    if whole.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return Err(bad());
    }
    let mut value = 0_i64;
    for b in whole {
        if !b.is_ascii_digit() {
            return Err(bad());
        }
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(i64::from(b - b'0')))
            .ok_or_else(out_of_range)?;
    }
    Ok((if negative { -value } else { value }, fraction))
}

/// Anything `jiff` reads as an instant, such as `2024-03-10T03:00-04:00[America/New_York]`.
#[cold]
fn parse_general(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    if !text.contains('[') {
        return None;
    }
    let zoned: jiff::ZonedDateTime = text.parse().ok()?;
    i64::try_from(zoned.timestamp().as_nanosecond()).ok()
}

#[cold]
fn fault(text: &[u8], reason: &'static str) -> TimeFault {
    match number::parse_number(text, false) {
        Err(number::NumberFault::Missing) => TimeFault::Missing,
        _ => TimeFault::Bad(reason.into()),
    }
}

#[cold]
fn out_of_range() -> TimeFault {
    TimeFault::Bad("outside the years 1678 to 2261".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, zone: &str) -> Result<i64, TimeFault> {
        TimeReader::probe(text.as_bytes(), zone).unwrap()?.parse(text.as_bytes())
    }

    const SECOND: i64 = 1_000_000_000;

    /// Case G10: seconds to nanoseconds by magnitude; a change is an error.
    #[test]
    fn case_g10_epoch_units() {
        let want = 1_772_452_800 * SECOND;
        for text in ["1772452800", "1772452800000", "1772452800000000", "1772452800000000000", "1772452800.0"]
        {
            assert_eq!(read(text, "UTC"), Ok(want), "{text}");
        }
        assert_eq!(read("1772452800.25", "UTC"), Ok(want + SECOND / 4));
        assert_eq!(read("1772452800000.5", "UTC"), Ok(want + 500_000));
        assert_eq!(read("-252322200", "UTC"), Ok(-252_322_200 * SECOND));
        let reader = TimeReader::probe(b"1772452800", "UTC").unwrap().unwrap();
        assert_eq!(
            reader.parse(b"1772452800000"),
            Err(TimeFault::Unit { was: EpochUnit::Seconds, now: EpochUnit::Millis })
        );
        assert!(matches!(reader.parse(b"2026-03-02"), Err(TimeFault::Bad(_))));
        assert!(matches!(read("0", "UTC"), Err(TimeFault::Bad(_))), "a row number is no time");
        assert!(matches!(read("99999999999999999999", "UTC"), Err(TimeFault::Bad(_))));
    }

    #[test]
    fn every_listed_format_is_read() {
        let want = 1_483_308_000 * SECOND; // 2017-01-01T22:00:00Z
        for text in [
            "2017-01-01T22:00:00Z",
            "2017-01-01T22:00:00.000Z",
            "2017-01-01T22:00Z",
            "2017-01-01 22:00:00",
            "2017-01-01 22:00:00+00:00",
            "2017-01-01 22:00:00.000000 UTC",
            "2017-01-01T23:00:00+01:00",
            "2017-01-01T17:00:00-0500",
            "2017-01-01T17:00:00-05",
            "2017/01/01 22:00",
            "2017.01.01 22:00",
            "01.01.2017 22:00:00.000",
            "01.01.2017 23:00:00.000 GMT+0100",
            "1/1/2017 22:00",
            "1/1/2017 10:00:00 PM",
            "01/01/2017 22:00:00",
            "20170101 220000",
            "20170101 220000000",
            "20170101220000",
            "20170101T220000Z",
            "2017-01-01T17:00-05:00[America/New_York]",
        ] {
            assert_eq!(read(text, "UTC"), Ok(want), "{text}");
        }
        let midnight = 1_483_228_800 * SECOND;
        for text in ["2017-01-01", "20170101", "01.01.2017", "1/1/2017", "1/1/2017 12:00 AM", "2017/1/1"] {
            assert_eq!(read(text, "UTC"), Ok(midnight), "{text}");
        }
        assert_eq!(read("2017-01-01 00:00:00.123456789", "UTC"), Ok(midnight + 123_456_789));
        assert_eq!(read("12/31/2016 23:59:59", "UTC"), Ok(midnight - SECOND));
        assert_eq!(read("31.12.2016 23:59:59", "UTC"), Ok(midnight - SECOND));
        assert_eq!(read("2016-02-29", "UTC"), Ok(1_456_704_000 * SECOND));
        assert_eq!(read("1969-12-31T23:59:59Z", "UTC"), Ok(-SECOND));
    }

    #[test]
    fn times_that_do_not_exist_are_refused() {
        for text in [
            "2017-02-29",
            "2017-13-01",
            "2017-00-10",
            "2017-01-32",
            "13/01/2017",
            "2017-01-01 24:00",
            "2017-01-01 12:60",
            "2017-01-01 12:00:60",
            "2017-01-01 13:00 PM",
            "2017-01-01 0:30 AM",
            "2017-01-01 12",
            "2017-01-01T",
            "2017-01-01 12:00 EST",
            "2017-01-01 12:00+25:00",
            "17-01-01",
            "01-02-2017",
            "1/2/17",
            "Jan 1 2017",
            "2017-01-01 12:00:00.",
            "2017-01-01 12:00:00.1234567890",
            "2017-01/01",
            "3017-01-01",
            "",
            "2017-01-01x",
            "\u{ff11}",
        ] {
            assert!(read(text, "UTC").is_err(), "{text}: {:?}", read(text, "UTC"));
        }
    }

    /// Case G12: offsets that change at the clock change are two instants an hour apart.
    #[test]
    fn case_g12_offsets_across_the_clock_change() {
        let before = read("2024-11-03T01:30:00-04:00", "UTC").unwrap();
        let after = read("2024-11-03T01:30:00-05:00", "UTC").unwrap();
        assert_eq!((before / SECOND, after / SECOND), (1_730_611_800, 1_730_615_400));
    }

    /// Case G13: a local time the zone skipped is an error, one that happened twice too, others are converted.
    #[test]
    fn case_g13_local_times() {
        let zone = "America/New_York";
        assert_eq!(read("2024-03-10T02:30", zone), Err(TimeFault::Skipped(zone.into())));
        assert_eq!(read("2024-11-03T01:30", zone), Err(TimeFault::Ambiguous(zone.into())));
        let before = read("2024-03-10T01:59", zone).unwrap();
        let after = read("2024-03-10T03:00", zone).unwrap();
        assert_eq!(after - before, 60 * SECOND);
        assert_eq!(read("2024-03-10T02:30", "UTC"), Ok(1_710_037_800 * SECOND));
        assert_eq!(
            read("2024-03-10T02:30-05:00", zone),
            Ok(1_710_055_800 * SECOND),
            "an offset overrides the zone"
        );
        // A date is the first instant of its day, also where that is not midnight.
        assert_eq!(read("2018-11-04", "America/Sao_Paulo"), Ok(1_541_300_400 * SECOND));
        assert!(matches!(
            TimeReader::probe(b"2024-03-10", "Mars/Olympus"),
            Err(MarketError::UnknownTimezone { .. })
        ));
    }
}
