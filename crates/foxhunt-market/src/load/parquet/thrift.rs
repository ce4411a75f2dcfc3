//! A walk over values in Thrift's compact protocol that takes no longer than they have bytes.
//!
//! The decoder counts one by one through the elements of a list that it does not know, as many as the list says it
//! has, and takes none of their bytes where they are booleans: five bytes keep it busy for seconds. No field of the
//! format is such a list, so here there may be none but an empty one. Fields that it knows it reads as the format has
//! them, whatever type they are told to be, and goes on behind; so here each must be told to be what it is. What fields
//! mean is not known here.

use super::format::Type;

/// The type of the end of a struct's fields.
pub(super) const STOP: u8 = 0;
/// The type of a struct's value; the others stand in [`Compact::value`].
const STRUCT: u8 = 12;
/// Values inside values; the decoder goes as deep.
const DEPTH: u32 = 64;

/// Bytes not yet walked over. Each walk is none when they end too soon or cannot be.
#[derive(Clone, Copy)]
pub(super) struct Compact<'a>(pub(super) &'a [u8]);

impl Compact<'_> {
    /// A whole struct of a type of the format.
    pub(super) fn structure(&mut self, kind: &Type) -> Option<()> {
        self.value(STRUCT, Some(kind), DEPTH)
    }

    /// The type that a struct's next field is told to have, or [`STOP`]; its number takes the place of the one before.
    pub(super) fn field(&mut self, number: &mut i16) -> Option<u8> {
        let head = self.byte()?;
        let told = head & 15;
        if told != STOP {
            *number = match head >> 4 {
                0 => self.integer()? as i16,
                step => number.checked_add(i16::from(step))?,
            };
        }
        Some(told)
    }

    /// The value of a field, of the type told, which must be the one `known` to the format, if any.
    pub(super) fn field_value(&mut self, told: u8, known: Option<&Type>) -> Option<()> {
        self.value(told, known, DEPTH)
    }

    /// An integer of two bytes or more.
    pub(super) fn integer(&mut self) -> Option<i64> {
        let coded = self.varint()?;
        Some((coded >> 1) as i64 ^ -((coded & 1) as i64))
    }

    fn skip(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn value(&mut self, told: u8, known: Option<&Type>, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        if known.is_some_and(|known| !is_told(known, told)) {
            return None;
        }
        match told {
            // A boolean of a field is its type.
            1 | 2 => Some(()),
            3 => self.skip(1),
            4..=6 => self.varint().map(drop),
            7 => self.skip(8),
            8 => self.varint().and_then(|bytes| self.skip(bytes)),
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                self.elements(count, &[head & 15], known.and_then(Type::element), depth)
            }
            11 => match self.varint()? {
                0 => Some(()),
                count => {
                    let kinds = self.byte()?;
                    self.elements(count, &[kinds >> 4, kinds & 15], None, depth)
                }
            },
            STRUCT => {
                let mut number = 0;
                loop {
                    match self.field(&mut number)? {
                        STOP => return Some(()),
                        told => self.value(told, known.and_then(|known| known.field(number)), depth)?,
                    }
                }
            }
            13 => self.skip(16),
            _ => None,
        }
    }

    /// `count` times a value of each type `told`, which all take bytes.
    fn elements(&mut self, count: u64, told: &[u8], known: Option<&Type>, depth: u32) -> Option<()> {
        if count > 0 && told.iter().any(|told| matches!(told, 1 | 2)) {
            return None;
        }
        for _ in 0..count {
            for &told in told {
                self.value(told, known, depth)?;
            }
        }
        Some(())
    }
}

fn is_told(known: &Type, told: u8) -> bool {
    match known {
        Type::Bool => matches!(told, 1 | 2),
        Type::I8 => told == 3,
        Type::I16 => told == 4,
        Type::I32 => told == 5,
        Type::I64 => told == 6,
        Type::Double => told == 7,
        Type::Binary => told == 8,
        Type::List(_) => told == 9,
        Type::Struct(_) => told == STRUCT,
    }
}
