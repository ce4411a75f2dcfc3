//! Every settings key changes what a run does, or is refused.
//!
//! The walk is over the keys of `Settings::default()` as TOML, so a key added later is walked too: it is changed by a
//! general rule, and the test fails until its effect shows. A key whose effect needs a setting of its own is given
//! one here. What counts as an effect is told by [`fingerprint`].

use std::path::Path;

use foxhunt::{Settings, Trainer};
use foxhunt_core::settings::{AverageQStop, NanPolicy, ReplayKind, SplitWindows, TargetUpdate};
use foxhunt_core::{Head, LinearSchedule};
use toml::Value;

use crate::support::{bars, metrics, newest, tiny};

/// Optional keys, which the default leaves out.
const OPTIONAL: [&str; 7] = [
    "data.symbol",
    "split.windows.train",
    "split.windows.validation",
    "split.windows.test",
    "execution.tick_size",
    "monitor.average_q_stop.min_change",
    "monitor.average_q_stop.patience",
];

/// Keys that act where this walk does not look, each with the test that looks.
const ELSEWHERE: [(&str, &str); 2] = [
    (
        "replay.memory_fallback",
        "acts when a device cannot hold the memory; the CPU engine has no other place",
    ),
    ("checkpoint.on_failure", "trainer::tests::a_failed_save_stops_or_warns_as_configured"),
];

#[test]
fn every_key_changes_a_run_or_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    leaves("", &Value::try_from(Settings::default()).unwrap(), &mut keys);
    keys.extend(OPTIONAL.map(str::to_owned));
    assert!(keys.len() > 70, "{}", keys.len());

    let mut without_effect = Vec::new();
    for key in &keys {
        if ELSEWHERE.iter().any(|(elsewhere, _)| elsewhere == key) {
            continue;
        }
        if let Some(text) = key.strip_prefix("data.") {
            assert!(data_key_acts(dir.path(), text), "data.{text} changes nothing");
            continue;
        }
        if key.starts_with("walk_forward.") {
            let mut default = Settings::default();
            // However many cores there are.
            default.run.threads = 2;
            let changed = with(&default, key, &other_value(key, &get(&default, key))).unwrap();
            assert_ne!(walk(&changed), walk(&default), "{key} changes nothing");
            continue;
        }
        let base = context(key, dir.path());
        base.validate().unwrap();
        let want = fingerprint(&base);
        let changed = with(&base, key, &other_value(key, &get(&base, key)));
        assert_ne!(changed, Ok(base.clone()), "{key} was not changed");
        let acts = match changed {
            Err(_) => true,
            Ok(changed) => fingerprint(&changed) != want,
        };
        if !acts {
            without_effect.push(key);
        }
    }
    assert!(without_effect.is_empty(), "keys without effect: {without_effect:?}");
}

/// A key that a changed run goes by does act: a refusal would satisfy the walk as well.
#[test]
fn distributions_run_and_differ() {
    let dir = tempfile::tempdir().unwrap();
    let plain = context("network.c51_atoms", dir.path());
    let mut seen = vec![fingerprint(&plain)];
    for (atoms, quantiles, range) in [(11, 0, 10.0), (11, 0, 3.0), (12, 0, 10.0), (0, 5, 10.0), (0, 6, 10.0)]
    {
        let mut settings = plain.clone();
        (settings.network.c51_atoms, settings.network.quantiles) = (atoms, quantiles);
        settings.network.c51_range = [-range, range];
        settings.validate().unwrap();
        let print = fingerprint(&settings);
        assert!(!print.contains("refused") && !print.contains("failed"), "{print}");
        assert!(!seen.contains(&print), "{atoms} {quantiles} {range} changes nothing");
        seen.push(print);
    }
}

/// Every dotted key below `value`; an array is one leaf.
fn leaves(prefix: &str, value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Table(table) => {
            for (name, value) in table {
                let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                leaves(&key, value, keys);
            }
        }
        _ => keys.push(prefix.to_owned()),
    }
}

fn get(settings: &Settings, key: &str) -> Value {
    let root = Value::try_from(settings.clone()).unwrap();
    key.split('.').fold(root, |value, part| value.get(part).unwrap_or_else(|| panic!("{key}")).clone())
}

/// `settings` with `key` changed, or why that is refused.
fn with(settings: &Settings, key: &str, value: &Value) -> Result<Settings, String> {
    let mut root = Value::try_from(settings.clone()).unwrap();
    let (path, last) = key.rsplit_once('.').unwrap();
    let table = path.split('.').fold(&mut root, |value, part| value.get_mut(part).unwrap());
    table.as_table_mut().unwrap().insert(last.to_owned(), value.clone());
    if key == "learner.target.kind" {
        let target = root["learner"]["target"].as_table_mut().unwrap();
        target.remove("tau");
        target.insert("every".to_owned(), Value::Integer(3));
    }
    let changed = Settings::from_toml(&toml::to_string(&root).unwrap()).map_err(|e| e.to_string())?;
    changed.validate().map_err(|e| e.to_string())?;
    Ok(changed)
}

/// A value that is allowed and different; by type, with exceptions for keys whose range is narrow.
fn other_value(key: &str, value: &Value) -> Value {
    let text = |s: &str| Value::String(s.to_owned());
    let pair = |start, end| Value::Array(vec![Value::Integer(start), Value::Integer(end)]);
    match key {
        "split.train" => Value::Float(0.5),
        "split.validation" => Value::Float(0.25),
        "split.windows.train" => pair(270, 600),
        "split.windows.validation" => pair(605, 740),
        "split.windows.test" => pair(756, 890),
        "walk_forward.scheme" => text("anchored"),
        "execution.limit_to_volume" => Value::Boolean(false),
        "env.ruin_fraction" => Value::Float(0.9999),
        "network.head" => text("factored"),
        "network.hidden" => Value::Array(vec![Value::Integer(9)]),
        "network.c51_atoms" => Value::Integer(11),
        "network.c51_range" => Value::Array(vec![Value::Float(-3.0), Value::Float(3.0)]),
        "network.quantiles" => Value::Integer(5),
        "learner.gamma" | "learner.adam_beta1" | "learner.adam_beta2" => Value::Float(0.8),
        "learner.clip_norm" | "learner.huber_delta" => Value::Float(0.01),
        // Half the default changes the bonus only where it was below it.
        "learner.munchausen_floor" => Value::Float(-1e-3),
        "learner.adam_epsilon" => Value::Float(0.1),
        "learner.target.kind" => text("hard"),
        "learner.precision" => text("tf32x3"),
        "replay.kind" => text("rank_based"),
        "replay.capacity" => Value::Integer(40),
        "replay.storage" => text("rows"),
        "replay.beta_max" => Value::Float(0.9),
        "replay.epsilon" => Value::Float(0.5),
        "exploration.epsilon.start" => Value::Float(0.7),
        "guard.nan_policy" => text("stop"),
        "monitor.average_q_stop.min_change" => Value::Float(1e-9),
        "guard.collapse_multiplier" => Value::Float(1e-9),
        "guard.loss_threshold" | "monitor.divergence_threshold" => Value::Float(1e-9),
        "run.device" => text("cuda"),
        "run.dir" => text(&format!("{}/elsewhere", value.as_str().unwrap())),
        _ => match value {
            Value::Boolean(b) => Value::Boolean(!b),
            Value::Integer(i) => Value::Integer(i + 1),
            Value::Float(f) => Value::Float(if *f == 0.0 { 0.01 } else { f * 0.5 }),
            other => panic!("{key}: no rule to change {other}"),
        },
    }
}

/// Settings under which `key` matters.
fn context(key: &str, dir: &Path) -> Settings {
    let mut s = tiny(dir);
    s.run.dir = dir.join("walk");
    match key {
        "split.windows.train" | "split.windows.validation" | "split.windows.test" => {
            let (train, validation, test) = ([256, 600], [605, 750], [755, 900]);
            s.split.windows = Some(SplitWindows { train, validation, test });
        }
        // Orders of every type are only sent when the head chooses them.
        "execution.maker_fee_bps" | "execution.limit_to_volume" => s.network.head = Head::Factored,
        "execution.tick_size" => {
            s.network.head = Head::Factored;
            s.execution.tick_size = Some(2.0);
        }
        "env.max_leverage" => s.env.max_leverage = 2.0,
        "network.c51_range" => s.network.c51_atoms = 11,
        // The two networks must come to disagree about the best action.
        "learner.double" => {
            s.learner.target = TargetUpdate::Hard { every: 1_000 };
            s.learner.learning_rate = LinearSchedule::constant(0.02);
        }
        "network.noisy_sigma" => s.network.noisy = true,
        "learner.munchausen" => s.learner.double = false,
        "learner.munchausen_alpha" | "learner.munchausen_tau" | "learner.munchausen_floor" => {
            (s.learner.double, s.learner.munchausen) = (false, true);
        }
        "learner.learning_rate.end" | "learner.learning_rate.steps" => s.learner.learning_rate.steps = 30,
        "replay.resort_every" => {
            s.replay.kind = ReplayKind::RankBased;
            s.replay.resort_every = 5;
        }
        // Every loss overflows, so every update is skipped.
        "guard.nan_policy" | "guard.max_skips_in_row" => {
            s.env.reward_scale = 1e30;
            s.learner.huber_delta = 1e35;
            s.guard.nan_policy = NanPolicy::Skip;
            s.guard.max_skips_in_row = 6;
        }
        "guard.collapse_multiplier" => (s.guard.collapse_warmup, s.guard.collapse_multiplier) = (0, 1e9),
        "guard.collapse_warmup" => (s.guard.collapse_warmup, s.guard.collapse_multiplier) = (50, 1e9),
        "guard.collapse_patience" => {
            (s.guard.collapse_warmup, s.guard.collapse_multiplier) = (0, 1e9);
            s.guard.collapse_patience = 30;
        }
        "monitor.average_q_stop.min_change" | "monitor.average_q_stop.patience" => {
            // Nothing moves as far as this: the first epoch is the anchor, the next `patience` stand still.
            s.monitor.average_q_stop = Some(AverageQStop { min_change: 1e3, patience: 2 });
        }
        "training.patience" => {
            (s.training.epochs, s.training.validate_every, s.training.patience) = (12, 1, 1);
        }
        _ => {}
    }
    s
}

/// Everything a run leaves behind that a user could see, without wall-clock times: how it ended, its metrics, the
/// checksum of its last state, its checkpoints, the evaluation, where it lies and how many threads worked.
fn fingerprint(settings: &Settings) -> String {
    let threads = settings.run.threads;
    let trainer = match Trainer::new(settings, bars(1)) {
        Ok(trainer) => trainer,
        Err(error) => return format!("refused: {error}"),
    };
    let paths = trainer.run_folder().paths().clone();
    let (ended, evaluation) = match trainer.run() {
        Ok(mut o) => {
            // The verdict counts the runs of this very walk.
            o.evaluation.as_mut().unwrap().verdict = None;
            (format!("{:?} {} {}", o.stop_reason, o.epochs, o.updates), serde_json::to_string(&o.evaluation))
        }
        Err(error) => (format!("failed: {error}"), Ok(String::new())),
    };
    let checkpoints = std::fs::read_dir(paths.checkpoints()).unwrap();
    let mut checkpoints: Vec<_> = checkpoints.map(|e| e.unwrap().file_name()).collect();
    checkpoints.sort();
    let metrics = serde_json::to_string(&metrics(&paths)).unwrap();
    let state = newest(&paths).manifest.state_blake3;
    let place = paths.folder().parent().unwrap().display().to_string();
    let parts = [ended, metrics, state, format!("{checkpoints:?}"), evaluation.unwrap(), place];
    format!("{parts:?} {}", if threads == 0 { 0 } else { engine_threads(settings) })
}

fn engine_threads(settings: &Settings) -> usize {
    let prepared = foxhunt::trainer::Prepared::fit(bars(1), settings).unwrap();
    foxhunt::cpu_engine::CpuEngine::new(settings, prepared.market, prepared.split.train).unwrap().threads()
}

/// What a walk-forward run would do.
fn walk(settings: &Settings) -> String {
    let folds = foxhunt::walk_forward::plan(6_000, 512, settings).unwrap();
    let (parallel, _) = foxhunt::walk_forward::concurrency(settings, 6_000, 2);
    format!("{folds:?} {} {parallel}", settings.walk_forward.seeds)
}

/// The keys of `data` act on how a file is read: each on a file in which it matters.
fn data_key_acts(dir: &Path, key: &str) -> bool {
    let row = |t: usize, sep: char, comma: char| {
        let price = |cents: usize| format!("{}{comma}{:02}", cents / 100, cents % 100);
        let close = 10_000 + (t * 37) % 90;
        let cells = [price(10_000), price(10_100), price(9_900), price(close)];
        let text: Vec<_> = cells.into_iter().map(|cell| format!("{sep}{cell}")).collect();
        format!("2021-01-{:02} {:02}:00:00{}", 1 + t / 24, t % 24, text.concat())
    };
    let plain = |range: std::ops::Range<usize>| -> Vec<String> { range.map(|t| row(t, ',', '.')).collect() };
    let header = "time,open,high,low,close".to_owned();
    let mut settings = Settings::default().data;
    let mut lines = vec![header];
    let mut other = settings.clone();
    match key {
        "symbol" => {
            lines[0].push_str(",symbol");
            lines.extend(
                plain(0..600).into_iter().flat_map(|line| [format!("{line},A"), format!("{line},B")]),
            );
            other.symbol = Some("A".to_owned());
        }
        "timezone" => {
            lines.extend(plain(0..600));
            other.timezone = "Asia/Tokyo".to_owned();
        }
        "decimal_comma" => {
            lines[0] = lines[0].replace(',', ";");
            lines.extend((0..600).map(|t| row(t, ';', ',')));
            other.decimal_comma = true;
        }
        "stamp" => {
            lines.extend(plain(0..600));
            other.stamp = foxhunt_core::settings::StampAt::Close;
        }
        "repair" => {
            lines.extend(plain(1..600));
            lines.extend(plain(0..1));
            other.repair = vec![foxhunt_core::settings::Repair::Unsorted];
        }
        other => panic!("data.{other}: no file in which it matters"),
    }
    let path = dir.join(format!("{key}.csv"));
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    let read = |settings| match foxhunt_market::load(&path, settings) {
        Ok(loaded) => loaded.bars.data_hash(),
        Err(error) => format!("refused: {error}"),
    };
    settings.repair.clear();
    let (want, got) = (read(&settings), read(&other));
    assert!(!got.starts_with("refused"), "{key}: {got}");
    want != got
}
