//! Pages in a real browser: headless Chromium, narrow and wide, light and dark.
//!
//! The page is shown in a frame of the width asked for, with `probe.js` in it, which measures what a reader would see.
//! Without a browser the test says SKIP; with `FOXHUNT_REQUIRE_BROWSER=1` that is a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// `FOXHUNT_BROWSER`, or a Chromium under its usual names.
fn browser() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("FOXHUNT_BROWSER") {
        return Some(given.into());
    }
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    std::env::split_paths(&folders).flat_map(|f| names.map(|name| f.join(name))).find(|path| path.is_file())
}

/// Shows `html` in a frame `width` pixels wide and takes what the probe tells.
fn look(browser: &Path, html: &str, width: u32, dark: bool) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let probed = html.replace("</body>", &format!("<script>{}</script></body>", include_str!("probe.js")));
    assert_ne!(probed, html, "the page has an end");
    fs::write(folder.path().join("page.html"), probed).unwrap();
    let frame = format!(
        "<!DOCTYPE html><pre id=told></pre><script>onmessage = m => told.textContent = m.data</script>\
         <iframe src=page.html style='width:{width}px;height:2000px;border:0'></iframe>"
    );
    fs::write(folder.path().join("frame.html"), frame).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
        ])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
        .args(["--window-size=1400,2200", "--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("file://{}", folder.path().join("frame.html").display()))
        .output()
        .unwrap();
    let page = String::from_utf8_lossy(&output.stdout);
    let told = page.split("<pre id=\"told\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let told = told.unwrap_or_else(|| panic!("{page}\n{}", String::from_utf8_lossy(&output.stderr)));
    let text = told.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// What must hold of every page.
fn check(browser: &Path, html: &str) {
    for (width, dark) in [(400, false), (400, true), (1280, false), (1280, true)] {
        let seen = look(browser, html, width, dark);
        let at = format!("{width} pixels, dark {dark}: {seen:#}");
        assert_eq!(seen["page_width"], width, "{at}");
        assert_eq!(seen["content_width"], width, "nothing sticks out; {at}");
        assert_eq!(seen["dark"], dark, "the reader's preference; {at}");
        assert_eq!(seen["first_stop"], "skip", "the first stop of the keyboard skips the navigation; {at}");
        assert!(seen["plots"].as_u64().unwrap() > 3, "{at}");
        for none in [
            "faint",
            "sticking_out",
            "empty_plots",
            "fetched",
            "unreachable",
            "repeated_ids",
            "dead_links",
            "headless_tables",
        ] {
            assert_eq!(seen[none].as_array().unwrap().len(), 0, "{none}; {at}");
        }
        for zero in ["nameless_plots", "skipped_levels"] {
            assert_eq!(seen[zero], 0, "{zero}; {at}");
        }
    }
}

#[test]
fn pages_look_right_in_a_browser() {
    let Some(browser) = browser() else {
        let required = std::env::var_os("FOXHUNT_REQUIRE_BROWSER").is_some_and(|value| value == "1");
        assert!(!required, "no browser found");
        eprintln!("SKIP: no Chromium here");
        return;
    };
    check(&browser, &super::ordinary().0);
    check(&browser, &super::walked().0);

    // A check that sees nothing would prove nothing.
    let html = super::ordinary().0;
    let spoilt = html
        .replace("</style>", "main { min-width: 3000px } .meta { color: var(--paper) !important }</style>")
        .replace("href=\"#data\"", "href=\"#nowhere\"");
    let seen = look(&browser, &spoilt, 1280, false);
    assert!(seen["content_width"].as_u64().unwrap() > 2000, "{seen}");
    for found in ["faint", "sticking_out", "dead_links"] {
        assert!(!seen[found].as_array().unwrap().is_empty(), "{found}: {seen}");
    }
}
