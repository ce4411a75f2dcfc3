//! Which symbol's rows are kept.

use std::path::Path;

use crate::error::MarketError;

/// Most symbols remembered for an error message or report.
const MAX_NAMES: usize = 64;

/// Distinct symbols in order of appearance.
#[derive(Clone, Debug, Default)]
pub(super) struct Symbols {
    names: Vec<String>,
    overflow: bool,
}

impl Symbols {
    pub(super) fn add(&mut self, name: &[u8]) {
        // Rows of one symbol mostly follow each other.
        if self.names.iter().rev().any(|n| n.as_bytes() == name) || self.overflow {
            return;
        }
        if self.names.len() == MAX_NAMES {
            self.overflow = true;
        } else {
            self.names.push(String::from_utf8_lossy(name).into_owned());
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for name in &other.names {
            self.add(name.as_bytes());
        }
        self.overflow |= other.overflow;
    }

    fn into_names(mut self, first: Option<&str>) -> Vec<String> {
        if let Some(first) = first {
            self.names.insert(0, first.into());
        }
        if self.overflow {
            self.names.push("...".into());
        }
        self.names
    }
}

/// The symbol whose rows are kept.
#[derive(Clone, Debug)]
pub(super) struct SymbolRule {
    /// None where the file names no symbols.
    pub(super) wanted: Option<String>,
    selected: bool,
}

impl SymbolRule {
    /// A selected symbol needs a file that names symbols; without a selection the first row's is kept.
    pub(super) fn new(
        path: &Path,
        selected: Option<&str>,
        has_symbols: bool,
        first: Option<String>,
    ) -> Result<Self, MarketError> {
        match (selected, has_symbols) {
            (Some(symbol), false) => {
                Err(MarketError::NoSymbolColumn { path: path.into(), symbol: symbol.into() })
            }
            (Some(symbol), true) => Ok(Self { wanted: Some(symbol.trim().into()), selected: true }),
            (None, _) => Ok(Self { wanted: first, selected: false }),
        }
    }

    /// Refuses a file with several symbols and no selection, or without the one selected.
    pub(super) fn finish(&self, path: &Path, kept: usize, others: Symbols) -> Result<(), MarketError> {
        if !self.selected && !others.names.is_empty() {
            let symbols = others.into_names(self.wanted.as_deref());
            return Err(MarketError::SeveralSymbols { path: path.into(), symbols });
        }
        if self.selected && kept == 0 {
            let symbol = self.wanted.clone().unwrap_or_default();
            return Err(MarketError::UnknownSymbol {
                path: path.into(),
                symbol,
                found: others.into_names(None),
            });
        }
        Ok(())
    }
}
