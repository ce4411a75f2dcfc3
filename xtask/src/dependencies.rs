//! Holds `docs/dependencies.md` against the manifests: every library named in one has a row that tells who uses it and
//! why.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

const PAGE: &str = "docs/dependencies.md";

/// Users of a library by name, each as the page writes it.
type Uses = BTreeMap<String, Vec<String>>;

/// Adds what is not true on the page.
pub(crate) fn check(root: &Path, faults: &mut Vec<String>) -> anyhow::Result<()> {
    let page = read(&root.join(PAGE))?;
    let (mut used, workspace) = manifests(root)?;
    // What the workspace offers and nobody takes.
    for name in workspace {
        used.entry(name).or_default();
    }
    faults.extend(compare(&page, &used));
    Ok(())
}

fn compare(page: &str, used: &Uses) -> Vec<String> {
    let mut faults = Vec::new();
    let mut told = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, users, reason] = cells[..] else {
            faults.push(format!("{PAGE}: a row without three cells: {row}"));
            continue;
        };
        if reason.is_empty() {
            faults.push(format!("{PAGE}: {name} has no reason"));
        }
        told.insert(name.trim_matches('`').to_owned(), users.to_owned());
    }
    for (name, users) in used {
        let users = users.join(", ");
        match told.remove(name) {
            None => faults.push(format!("{PAGE} does not list {name}, used by {users}")),
            Some(_) if users.is_empty() => {
                faults.push(format!("Cargo.toml names {name}, which nothing uses"));
            }
            Some(told) if told != users => {
                faults.push(format!("{PAGE}: {name} is used by {users}, not by {told}"));
            }
            Some(_) => {}
        }
    }
    faults.extend(told.into_keys().map(|name| format!("{PAGE} lists {name}, which no manifest names")));
    faults
}

/// Who uses what, and what the workspace offers; our own crates left out.
fn manifests(root: &Path) -> anyhow::Result<(Uses, Vec<String>)> {
    let mut folders = vec![root.join("xtask"), root.join("fuzz")];
    for entry in fs::read_dir(root.join("crates")).context("cannot list crates")? {
        folders.push(entry?.path());
    }
    let mut used = Uses::new();
    let names = |table: Option<&toml::Value>| -> Vec<String> {
        let keys = table.and_then(toml::Value::as_table).into_iter().flat_map(|table| table.keys());
        keys.filter(|name| !name.starts_with("foxhunt")).cloned().collect()
    };
    for folder in folders {
        let manifest: toml::Table = read(&folder.join("Cargo.toml"))?.parse()?;
        let package = manifest.get("package").and_then(|p| p.get("name")).and_then(toml::Value::as_str);
        let package = package.with_context(|| format!("{} has no name", folder.display()))?;
        let always = names(manifest.get("dependencies"));
        for name in names(manifest.get("dev-dependencies")) {
            if !always.contains(&name) {
                used.entry(name).or_default().push(format!("{package} (tests)"));
            }
        }
        for name in always {
            used.entry(name).or_default().push(package.to_owned());
        }
    }
    used.values_mut().for_each(|users| users.sort());
    let whole: toml::Table = read(&root.join("Cargo.toml"))?.parse()?;
    Ok((used, names(whole.get("workspace").and_then(|w| w.get("dependencies")))))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_being_untrue_is_told() {
        let used = |rows: &[(&str, &[&str])]| -> Uses {
            let row = |(name, users): &(&str, &[&str])| {
                ((*name).to_owned(), users.iter().map(ToString::to_string).collect())
            };
            rows.iter().map(row).collect()
        };
        let page = "| library | used by | for |\n|---|---|---|\n| `a` | x, y (tests) | reasons |\n";
        let fault = |rows: &[(&str, &[&str])]| compare(page, &used(rows)).join("\n");
        assert_eq!(fault(&[("a", &["x", "y (tests)"])]), "");
        assert!(fault(&[("a", &["x", "y"])]).contains("a is used by x, y, not by x, y (tests)"));
        assert!(fault(&[("a", &["x", "y (tests)"]), ("b", &["x"])]).contains("does not list b"));
        assert!(fault(&[("a", &[])]).contains("a, which nothing uses"));
        assert!(fault(&[]).contains("lists a, which no manifest names"));
        let bare = "| `a` | x | |\n| `b` | x |\n";
        let told = compare(bare, &used(&[("a", &["x"])])).join("\n");
        assert!(told.contains("`a` has no reason") && told.contains("without three cells"), "{told}");
    }

    #[test]
    fn the_page_is_true() {
        let mut faults = Vec::new();
        check(&crate::root(), &mut faults).unwrap();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}
