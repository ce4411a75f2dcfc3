//! Arrow arrays as numbers, times and texts.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Float32Type, Float64Type, Int64Type, Time64NanosecondType};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, StringArray};
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};

use super::Picked;
use crate::error::MarketError;
use crate::load::chunk::FileContext;
use crate::load::header::TimeColumns;
use crate::load::number::parse_number;
use crate::load::text::{number_error, value_text};
use crate::load::time::{TimeFault, TimeReader};

const DAY_NS: i128 = 86_400_000_000_000;

impl Picked<'_> {
    fn array(&self, column: usize) -> Option<&ArrayRef> {
        let position = self.needed.iter().position(|&c| c == column)?;
        self.batch.columns().get(position)
    }
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn array_of<'a>(
    file: &FileContext<'_>,
    picked: &'a Picked<'_>,
    column: usize,
) -> Result<&'a ArrayRef, MarketError> {
    picked.array(column).ok_or_else(|| failed(file, column, &"the column is not in the batch"))
}

fn cast_to(
    file: &FileContext<'_>,
    column: usize,
    array: &ArrayRef,
    kind: &DataType,
) -> Result<ArrayRef, MarketError> {
    cast(array, kind).map_err(|e| failed(file, column, &e))
}

fn failed(file: &FileContext<'_>, column: usize, reason: &dyn std::fmt::Display) -> MarketError {
    MarketError::UnknownFormat {
        path: file.path.into(),
        reason: format!("column {}: {reason}", file.layout.names[column]),
    }
}

fn missing(file: &FileContext<'_>, column: usize, row: u64) -> MarketError {
    MarketError::MissingValue {
        place: file.place(row, file.layout.names[column].clone()),
        value: "null".into(),
    }
}

/// One numeric column of a batch.
pub(super) struct Numbers<'a> {
    values: Values,
    column: usize,
    name: &'a str,
    has_nulls: bool,
    decimal_comma: bool,
}

enum Values {
    Floats(Float64Array),
    Texts(StringArray),
}

impl<'a> Numbers<'a> {
    pub(super) fn readable(kind: &DataType) -> bool {
        kind.is_numeric() || is_text(kind)
    }

    pub(super) fn new(
        file: &FileContext<'a>,
        picked: &Picked<'_>,
        column: usize,
        decimal_comma: bool,
    ) -> Result<Self, MarketError> {
        let array = array_of(file, picked, column)?;
        let values = match array.data_type() {
            kind if is_text(kind) => {
                Values::Texts(cast_to(file, column, array, &DataType::Utf8)?.as_string::<i32>().clone())
            }
            DataType::Float32 => {
                Values::Floats(array.as_primitive::<Float32Type>().unary::<_, Float64Type>(shortest))
            }
            DataType::Float64 => Values::Floats(array.as_primitive::<Float64Type>().clone()),
            _ => Values::Floats(
                cast_to(file, column, array, &DataType::Float64)?.as_primitive::<Float64Type>().clone(),
            ),
        };
        let name = file.layout.names[column].as_str();
        Ok(Self { values, column, name, has_nulls: array.null_count() > 0, decimal_comma })
    }

    pub(super) fn name(&self) -> &str {
        self.name
    }

    #[inline]
    pub(super) fn get(&self, file: &FileContext<'_>, index: usize, row: u64) -> Result<f64, MarketError> {
        match &self.values {
            Values::Floats(values) => {
                if self.has_nulls && values.is_null(index) {
                    return Err(missing(file, self.column, row));
                }
                Ok(values.value(index))
            }
            Values::Texts(texts) => {
                if self.has_nulls && texts.is_null(index) {
                    return Err(missing(file, self.column, row));
                }
                let text = texts.value(index).as_bytes();
                parse_number(text, self.decimal_comma)
                    .map_err(|fault| number_error(file, row, self.column, text, fault))
            }
        }
    }
}

/// The shortest decimal that is this f32: 1.05236 rather than 1.0523600578308105.
///
/// Prices are decimal numbers; widening the binary value would put them off their tick.
fn shortest(value: f32) -> f64 {
    let wide = f64::from(value);
    if !value.is_finite() || value == 0.0 {
        return wide;
    }
    let magnitude = wide.abs().log10().floor() as i32;
    for digits in 6..=9 {
        let decimals = digits - 1 - magnitude;
        let rounded = if decimals >= 0 {
            let scale = 10_f64.powi(decimals);
            (wide * scale).round() / scale
        } else {
            let scale = 10_f64.powi(-decimals);
            (wide / scale).round() * scale
        };
        if rounded as f32 == value {
            return rounded;
        }
    }
    wide
}

/// One text column of a batch.
pub(super) struct Texts {
    values: StringArray,
    column: usize,
}

impl Texts {
    pub(super) fn readable(kind: &DataType) -> bool {
        is_text(kind) || kind.is_integer()
    }

    pub(super) fn new(
        file: &FileContext<'_>,
        picked: &Picked<'_>,
        column: usize,
    ) -> Result<Self, MarketError> {
        let array = cast_to(file, column, array_of(file, picked, column)?, &DataType::Utf8)?;
        Ok(Self { values: array.as_string::<i32>().clone(), column })
    }

    #[inline]
    pub(super) fn get(&self, file: &FileContext<'_>, index: usize, row: u64) -> Result<&str, MarketError> {
        if self.values.is_null(index) {
            return Err(missing(file, self.column, row));
        }
        Ok(self.values.value(index))
    }
}

/// How the times of the file are to be read.
pub(super) struct TimeSource {
    reader: TimeReader,
    described: Option<String>,
    local: bool,
}

/// The times of one batch.
pub(super) struct Times<'a> {
    reader: &'a TimeReader,
    column: usize,
    values: TimeValues,
}

enum TimeValues {
    /// Instants, to be multiplied.
    Instants(Int64Array, i64),
    /// Local times, to be multiplied; the flag says that they are dates.
    Locals(Int64Array, i64, bool),
    Epochs(Int64Array),
    Texts(StringArray),
    TextPairs(StringArray, StringArray),
    /// Days and nanoseconds of the day.
    DayClocks(Int64Array, Int64Array),
}

impl TimeSource {
    /// Settles the reading from a batch of one row.
    pub(super) fn settle(
        file: &FileContext<'_>,
        first: &Picked<'_>,
        timezone: &str,
    ) -> Result<Self, MarketError> {
        let column = match file.layout.time {
            TimeColumns::One(column) | TimeColumns::Pair { date: column, .. } => column,
        };
        let array = array_of(file, first, column)?;
        if array.is_null(0) {
            return Err(missing(file, column, 1));
        }
        let refused = |fault: TimeFault, value: String| {
            fault.into_error(file.place(1, file.layout.names[column].clone()), value)
        };
        let kind = array.data_type();
        let (reader, described) = if is_text(kind) {
            let text = cast_to(file, column, array, &DataType::Utf8)?;
            let text = text.as_string::<i32>().value(0);
            let reader = TimeReader::probe(text.as_bytes(), timezone)?
                .map_err(|fault| refused(fault, value_text(text.as_bytes())))?;
            (reader, None)
        } else if kind.is_numeric() {
            let value = cast_to(file, column, array, &DataType::Int64)?.as_primitive::<Int64Type>().value(0);
            let reader = TimeReader::for_epochs(value, timezone)?
                .map_err(|fault| refused(fault, value.to_string()))?;
            (reader, None)
        } else {
            (TimeReader::for_local(timezone)?, Some(kind.to_string()))
        };
        let instant = matches!(kind, DataType::Timestamp(_, Some(_)));
        let local = if described.is_some() { !instant } else { reader.is_local() };
        Ok(Self { reader, described, local })
    }

    pub(super) fn describe(&self) -> String {
        self.described.clone().unwrap_or_else(|| self.reader.describe())
    }

    pub(super) fn is_local(&self) -> bool {
        self.local
    }

    pub(super) fn of_batch(
        &self,
        file: &FileContext<'_>,
        picked: &Picked<'_>,
    ) -> Result<Times<'_>, MarketError> {
        let integers = |column: usize, array: &ArrayRef| -> Result<Int64Array, MarketError> {
            Ok(cast_to(file, column, array, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
        };
        let texts = |column: usize, array: &ArrayRef| -> Result<StringArray, MarketError> {
            Ok(cast_to(file, column, array, &DataType::Utf8)?.as_string::<i32>().clone())
        };
        let (column, values) = match file.layout.time {
            TimeColumns::One(column) => {
                let array = array_of(file, picked, column)?;
                let values = match array.data_type() {
                    DataType::Timestamp(unit, Some(_)) => {
                        TimeValues::Instants(integers(column, array)?, nanos(*unit))
                    }
                    DataType::Timestamp(unit, None) => {
                        TimeValues::Locals(integers(column, array)?, nanos(*unit), false)
                    }
                    DataType::Date32 => {
                        let days = array.as_primitive::<Date32Type>();
                        TimeValues::Locals(days.unary(i64::from), 86_400_000_000_000, true)
                    }
                    DataType::Date64 => TimeValues::Locals(integers(column, array)?, 1_000_000, true),
                    kind if is_text(kind) => TimeValues::Texts(texts(column, array)?),
                    _ => TimeValues::Epochs(integers(column, array)?),
                };
                (column, values)
            }
            TimeColumns::Pair { date, time } => {
                let (day, clock) = (array_of(file, picked, date)?, array_of(file, picked, time)?);
                let values = match (day.data_type(), clock.data_type()) {
                    (d, t) if is_text(d) && is_text(t) => {
                        TimeValues::TextPairs(texts(date, day)?, texts(time, clock)?)
                    }
                    (DataType::Date32, DataType::Time32(_) | DataType::Time64(_)) => {
                        let days = day.as_primitive::<Date32Type>().unary(i64::from);
                        let kind = DataType::Time64(TimeUnit::Nanosecond);
                        let clock = cast_to(file, time, clock, &kind)?;
                        let clock = clock.as_primitive::<Time64NanosecondType>().unary(|ns| ns);
                        TimeValues::DayClocks(days, clock)
                    }
                    (d, t) => {
                        return Err(MarketError::ColumnType {
                            path: file.path.into(),
                            column: file.layout.time_name(),
                            found: format!("{d} and {t}"),
                            wanted: "a date and a time of day",
                        });
                    }
                };
                (date, values)
            }
        };
        Ok(Times { reader: &self.reader, column, values })
    }
}

impl Times<'_> {
    pub(super) fn readable(kind: &DataType) -> bool {
        matches!(
            kind,
            DataType::Timestamp(..)
                | DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_)
        ) || kind.is_integer()
            || matches!(kind, DataType::Float64)
            || is_text(kind)
    }

    /// Nanoseconds UTC of one row.
    #[inline]
    pub(super) fn get(&self, file: &FileContext<'_>, index: usize, row: u64) -> Result<i64, MarketError> {
        let whole = |values: &Int64Array| {
            if values.is_null(index) { Err(missing(file, self.column, row)) } else { Ok(values.value(index)) }
        };
        let text = |values: &'_ StringArray| -> Result<String, MarketError> {
            if values.is_null(index) {
                Err(missing(file, self.column, row))
            } else {
                Ok(values.value(index).to_owned())
            }
        };
        let (result, shown): (Result<i64, TimeFault>, Cow<'_, str>) = match &self.values {
            TimeValues::Instants(values, scale) => {
                let value = whole(values)?;
                match value.checked_mul(*scale) {
                    Some(time) => return Ok(time),
                    None => (
                        Err(TimeFault::Bad("outside the years 1678 to 2261".into())),
                        value.to_string().into(),
                    ),
                }
            }
            TimeValues::Locals(values, scale, date_only) => {
                let local = i128::from(whole(values)?) * i128::from(*scale);
                match self.reader.local_nanos(local, *date_only) {
                    Ok(time) => return Ok(time),
                    Err(fault) => (Err(fault), shown_local(local).into()),
                }
            }
            TimeValues::Epochs(values) => {
                let value = whole(values)?;
                match self.reader.epoch(value) {
                    Ok(time) => return Ok(time),
                    Err(fault) => (Err(fault), value.to_string().into()),
                }
            }
            TimeValues::Texts(values) => {
                let text = text(values)?;
                (self.reader.parse(text.as_bytes()), text.into())
            }
            TimeValues::TextPairs(dates, clocks) => {
                let (date, clock) = (text(dates)?, text(clocks)?);
                let result = self.reader.parse_pair(date.as_bytes(), clock.as_bytes());
                (result, format!("{date} {clock}").into())
            }
            TimeValues::DayClocks(days, clocks) => {
                let local = i128::from(whole(days)?) * DAY_NS + i128::from(whole(clocks)?);
                (self.reader.local_nanos(local, false), shown_local(local).into())
            }
        };
        result.map_err(|fault| {
            fault.into_error(file.place(row, file.layout.time_name()), value_text(shown.as_bytes()))
        })
    }
}

fn shown_local(local: i128) -> String {
    jiff::Timestamp::from_nanosecond(local)
        .map_or_else(|_| format!("{local} ns"), |t| jiff::tz::TimeZone::UTC.to_datetime(t).to_string())
}

fn nanos(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::shortest;

    #[test]
    fn f32_prices_come_back_as_the_decimals_they_were() {
        for text in ["1.05236", "118.56", "0.0078125", "4000.25", "20005", "9.12e-6", "123456.7", "143539993"]
        {
            let want: f64 = text.parse().unwrap();
            assert_eq!(shortest(text.parse::<f32>().unwrap()) as f32, text.parse::<f32>().unwrap());
            if want < 1e8 {
                assert_eq!(shortest(text.parse::<f32>().unwrap()), want, "{text}");
            }
        }
        assert!(shortest(f32::NAN).is_nan());
    }
}
