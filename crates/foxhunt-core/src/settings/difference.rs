//! Keys that two settings disagree on, by name and value.

use std::collections::BTreeMap;
use std::path::PathBuf;

use toml::{Table, Value};

use super::Settings;

/// What a key without a value is shown as.
const ABSENT: &str = "none";

/// A key with two values, each as a settings file writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Dotted key.
    pub key: String,
    /// Its value in the settings asked.
    pub here: String,
    /// Its value in the others.
    pub there: String,
}

impl Settings {
    /// Every key whose value is another in `other`, in alphabetical order.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let (mut here, mut there) = (self.flat(), other.flat());
        let keys: Vec<String> = here.keys().chain(there.keys()).cloned().collect();
        let value = |values: &mut BTreeMap<String, String>, key: &str| {
            values.remove(key).unwrap_or_else(|| ABSENT.to_owned())
        };
        let mut found: Vec<Difference> = keys
            .into_iter()
            .map(|key| Difference { here: value(&mut here, &key), there: value(&mut there, &key), key })
            .filter(|difference| difference.here != difference.there)
            .collect();
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found
    }

    /// Dotted keys and their values.
    fn flat(&self) -> BTreeMap<String, String> {
        // A path that TOML has no way to write would hide everything else.
        let mut rest = self.clone();
        let folder = std::mem::replace(&mut rest.run.dir, PathBuf::new());
        let mut values = BTreeMap::new();
        flatten("", Table::try_from(&rest).unwrap_or_default(), &mut values);
        values.insert("run.dir".to_owned(), folder.display().to_string());
        values
    }
}

fn flatten(prefix: &str, table: Table, values: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(table) => flatten(&key, table, values),
            Value::String(text) => drop(values.insert(key, text)),
            other => drop(values.insert(key, other.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{AverageQStop, TargetUpdate};

    fn told(change: impl FnOnce(&mut Settings)) -> Vec<(String, String, String)> {
        let (before, mut after) = (Settings::default(), Settings::default());
        change(&mut after);
        let differences = before.differences(&after);
        differences.into_iter().map(|Difference { key, here, there }| (key, here, there)).collect()
    }

    #[test]
    fn every_kind_of_value_is_named() {
        assert!(told(|_| ()).is_empty());
        let named = |key: &str, here: &str, there: &str| (key.to_owned(), here.to_owned(), there.to_owned());
        let batch = Settings::default().learner.batch.to_string();
        assert_eq!(told(|s| s.learner.batch = 7), [named("learner.batch", &batch, "7")]);
        let changed = told(|s| {
            s.network.hidden = vec![8, 9];
            s.data.symbol = Some("IBM".to_owned());
            s.run.dir = PathBuf::from("elsewhere");
        });
        let keys: Vec<&str> = changed.iter().map(|(key, ..)| key.as_str()).collect();
        assert_eq!(keys, ["data.symbol", "network.hidden", "run.dir"]);
        assert_eq!(changed[0], named("data.symbol", "none", "IBM"));
        assert_eq!((changed[1].2.as_str(), changed[2].2.as_str()), ("[8, 9]", "elsewhere"));
        let changed = told(|s| {
            s.learner.target = TargetUpdate::Hard { every: 7 };
            s.monitor.average_q_stop = Some(AverageQStop { min_change: 0.5, patience: 3 });
        });
        assert!(changed.contains(&named("learner.target.every", "none", "7")), "{changed:?}");
        assert!(changed.contains(&named("monitor.average_q_stop.patience", "none", "3")), "{changed:?}");
    }
}
