//! A trained policy by itself: what is needed to act, and nothing of how it was learned.
//!
//! A policy folder holds `policy.safetensors` (the network's arrays under the names of
//! [`MlpLayout`], f32) and `policy.json` (settings, normaliser, the tick size that fills went by, the feature table it
//! was made for, the checksum of both). It is written beside its place and renamed into it. Acting is greedy, ties go to
//! the lowest index, on the CPU; `serve` answers for an account outside of any backtest. Judging a policy is [`evaluation`](crate::evaluation)'s business.

mod serve;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use serve::Holding;

use foxhunt_core::{Exposure, FactoredAction, Head, Settings};
use foxhunt_market::{FEATURES, Market, Normaliser, STATE_DIM};
use foxhunt_ops::env_step::EnvParams;
use foxhunt_ops::mlp::{MlpLayout, MlpShape};
use foxhunt_ops::select_actions::{Explore, select_actions, select_actions_branching};
use serde::{Deserialize, Serialize};

use crate::MLError;
use crate::checkpoint::sealed::{self, Format};
use crate::checkpoint::state_file::{self, Fingerprint};
use crate::checkpoint::store::{check_fingerprint, remove, replace_folder, sync_folder, write_sealed};
use crate::checkpoint::{CheckpointFault, settings_hash};
use crate::engine::{Array, ArrayData, Snapshot};
use crate::evaluation::Decision;
use crate::learner::QNetwork;
use crate::run_folder::RunPaths;

/// Version 1 had no tick size; such a file is read, and says that it has none.
const FORMAT: Format = Format { name: "foxhunt policy", version: 2 };
const DOCUMENT: &str = "policy.json";
const ARRAYS: &str = "policy.safetensors";
/// Times a policy is looked at that is replaced meanwhile.
const ATTEMPTS: u32 = 100;
/// Times in a row that nothing must have changed before what is wrong with it is told, and the time between them.
const CALM: u32 = 3;
const PAUSE: Duration = Duration::from_millis(1);

/// What `policy.json` holds, beside the frame of [`sealed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    settings: Settings,
    settings_hash: String,
    normaliser: Normaliser,
    #[serde(default)]
    tick_size: Option<f64>,
    state_dim: usize,
    features_hash: String,
    arrays_bytes: u64,
    arrays_blake3: String,
}

/// A greedy policy.
#[derive(Clone, Debug)]
pub struct Policy {
    settings: Settings,
    normaliser: Normaliser,
    tick_size: Option<f64>,
    params: EnvParams,
    network: QNetwork,
    /// f32 `[n_outputs]`.
    q: Vec<f32>,
}

/// The network that `settings` describe, as it acts: of noisy layers the means.
#[must_use]
pub fn network_layout(settings: &Settings) -> MlpLayout {
    MlpLayout::new(MlpShape::of(&settings.network, STATE_DIM, settings.network.head.into()))
}

impl Policy {
    /// A policy from the named arrays of a network. `tick_size` is the one its market was traded with, price units;
    /// none when it is not known.
    ///
    /// # Errors
    /// [`MLError::Checkpoint`] naming the array that is missing, unknown, misshapen or not finite,
    /// [`MLError::InvalidArgument`] for a tick size that is not above 0, and [`MLError::Market`] for a normaliser made
    /// for other features.
    pub fn new(
        settings: &Settings,
        normaliser: Normaliser,
        tick_size: Option<f64>,
        arrays: &Snapshot,
    ) -> Result<Self, MLError> {
        normaliser.check()?;
        if let Some(tick) = tick_size.filter(|tick| !(*tick > 0.0 && tick.is_finite())) {
            let (what, value) = ("tick_size", tick.to_string());
            return Err(MLError::InvalidArgument { what, value, rule: "a finite number above 0" });
        }
        let layout = network_layout(settings);
        let parameters = flat(&layout, arrays)
            .map_err(|reason| MLError::Checkpoint { path: PathBuf::from("policy"), reason })?;
        let (mut q, state) = (vec![0.0; layout.n_outputs()], [0.0; STATE_DIM]);
        let mut network = QNetwork::with_parameters(layout, parameters)?;
        // Once here, so that the first answer takes no longer than the others.
        network.q_values(&state, &mut q)?;
        let params = EnvParams::new(settings);
        Ok(Self { settings: settings.clone(), normaliser, tick_size, params, network, q })
    }

    /// Loads the policy of a run folder, or a policy folder itself.
    ///
    /// # Errors
    /// [`MLError::CheckpointFile`] when it is missing, torn, newer than this build, or made for another feature
    /// table or state size.
    pub fn load(path: &Path) -> Result<Self, MLError> {
        // The last is where a crash in the middle of a replacement leaves the policy before.
        let places = [path.to_path_buf(), path.join("policy"), path.join("policy.old.tmp")];
        let find = || places.iter().find(|folder| folder.join(DOCUMENT).exists()).unwrap_or(&places[0]);
        let (mut attempt, mut calm) = (1, 0);
        loop {
            let folder = find();
            let document = || fs::read(folder.join(DOCUMENT)).ok();
            let before = document();
            let fault = match Self::read(folder) {
                Ok(policy) => return Ok(policy),
                Err(fault) => fault,
            };
            // A run that goes on may put a better policy in its place while this one is read.
            let replaced = folder != find() || before != document();
            calm = if replaced { 0 } else { calm + 1 };
            // Two replacements can look the same by chance, so once is not enough.
            if calm == CALM || attempt == ATTEMPTS {
                return Err(MLError::CheckpointFile { path: folder.clone(), fault });
            }
            if !replaced {
                std::thread::sleep(PAUSE);
            }
            attempt += 1;
        }
    }

    fn read(folder: &Path) -> Result<Self, CheckpointFault> {
        let document: Document =
            sealed::read(FORMAT, DOCUMENT, &folder.join(DOCUMENT)).map_err(|fault| match fault {
                CheckpointFault::Unfinished if !folder.exists() => CheckpointFault::Missing,
                CheckpointFault::Unfinished if RunPaths::new(folder).folds().exists() => {
                    CheckpointFault::OneEachFold
                }
                CheckpointFault::Unfinished => CheckpointFault::NoPolicy,
                other => other,
            })?;
        let (arrays, found) = state_file::read(&folder.join(ARRAYS))?;
        let expected = Fingerprint { bytes: document.arrays_bytes, blake3: document.arrays_blake3 };
        check_fingerprint(ARRAYS, &expected, &found)?;
        let foreign = |reason: String| Err(CheckpointFault::Foreign { reason });
        if document.state_dim != STATE_DIM {
            return foreign(format!("made for states of {} values, not {STATE_DIM}", document.state_dim));
        }
        if document.features_hash != features_hash() {
            return foreign("made with another feature table".to_owned());
        }
        // Before memory is taken on their word.
        if let Err(error) = document.settings.validate() {
            return foreign(format!("made with settings that no run has: {error}"));
        }
        Self::new(&document.settings, document.normaliser, document.tick_size, &arrays)
            .or_else(|error| foreign(error.to_string()))
    }

    /// Writes the policy to `folder`, replacing one that is there.
    ///
    /// # Errors
    /// [`MLError::WriteFailed`] or [`MLError::Io`].
    pub fn save(&self, folder: &Path) -> Result<(), MLError> {
        let temporary = PathBuf::from(format!("{}.tmp", folder.display()));
        remove(&temporary)?;
        let write = || {
            fs::create_dir_all(&temporary).map_err(|source| MLError::Io {
                action: "create",
                path: temporary.clone(),
                source,
            })?;
            let found = state_file::write(&temporary.join(ARRAYS), &self.arrays())?;
            let document = Document {
                settings: self.settings.clone(),
                settings_hash: settings_hash(&self.settings),
                normaliser: self.normaliser.clone(),
                tick_size: self.tick_size,
                state_dim: STATE_DIM,
                features_hash: features_hash(),
                arrays_bytes: found.bytes,
                arrays_blake3: found.blake3,
            };
            write_sealed(&temporary.join(DOCUMENT), FORMAT, &document)?;
            sync_folder(&temporary)
        };
        if let Err(error) = write() {
            // Best effort: the first error is the one worth telling.
            let _ = fs::remove_dir_all(&temporary);
            return Err(error);
        }
        replace_folder(&temporary, folder)
    }

    /// Whether `path` is a file of a saved policy, which nothing else may be written to.
    pub(crate) fn owns(path: &Path) -> bool {
        let named = path.file_name().is_some_and(|name| name == DOCUMENT || name == ARRAYS);
        named && path.with_file_name(DOCUMENT).exists()
    }

    /// The settings it was trained with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How features have to be scaled for it.
    #[must_use]
    pub fn normaliser(&self) -> &Normaliser {
        &self.normaliser
    }

    /// The tick size that its fills went by in training, price units; none in a policy saved before it was kept.
    #[must_use]
    pub fn tick_size(&self) -> Option<f64> {
        self.tick_size
    }

    /// The layout of its network.
    #[must_use]
    pub fn layout(&self) -> &MlpLayout {
        self.network.layout()
    }

    /// Its network, f32 `[layout.len()]`.
    #[must_use]
    pub fn parameters(&self) -> &[f32] {
        self.network.parameters()
    }

    /// Its network as named arrays.
    #[must_use]
    pub fn arrays(&self) -> Snapshot {
        named(self.layout(), self.parameters())
    }

    /// Q-values of one state, f32 `[n_outputs]`, branch after branch.
    ///
    /// # Errors
    /// [`MLError::Shape`] when the state has another size than the network, [`MLError::InvalidArgument`] when it holds
    /// a NaN or an infinity (case C12).
    pub fn q_values(&mut self, state: &[f32]) -> Result<&[f32], MLError> {
        let expected = self.network.layout().shape().state_dim;
        if state.len() != expected {
            return Err(MLError::Shape {
                what: "state",
                got: vec![state.len()],
                expected: format!("[{expected}]"),
            });
        }
        if let Some(value) = state.iter().find(|value| !value.is_finite()) {
            return Err(MLError::InvalidArgument {
                what: "state",
                value: value.to_string(),
                rule: "finite in every feature",
            });
        }
        self.network.q_values(state, &mut self.q)?;
        Ok(&self.q)
    }

    /// The greedy decision in `state`, seen at the close of `bar`; the market's router completes an exposure. It falls
    /// back where every Q-value of a branch is NaN.
    ///
    /// # Errors
    /// As [`Policy::q_values`].
    pub fn act(&mut self, market: &Market, state: &[f32], bar: usize) -> Result<Decision, MLError> {
        self.q_values(state)?;
        greedy(self.settings.network.head, &self.q, market, bar)
    }
}

/// The greedy decision of one row of Q-values, f32 `[n_outputs]`.
pub(crate) fn greedy(head: Head, q: &[f32], market: &Market, bar: usize) -> Result<Decision, MLError> {
    let mut action = [0];
    let fallbacks = match head {
        Head::Branching => select_actions_branching(q, None, &Explore::greedy(), &mut action),
        _ => select_actions(q, head.n_actions(), None, &Explore::greedy(), &mut action),
    };
    Ok(Decision { action: complete(head, action[0], market, bar)?, fell_back: fallbacks > 0 })
}

/// The factored action that an action as the replay stores it stands for at `bar`.
fn complete(head: Head, action: u32, market: &Market, bar: usize) -> Result<FactoredAction, MLError> {
    Ok(match head {
        Head::Exposure => market.route(bar, Exposure::from_index(action)?),
        Head::Factored | Head::Branching => FactoredAction::from_index(action)?,
    })
}

/// The flat array of a network as named arrays.
pub(crate) fn named(layout: &MlpLayout, parameters: &[f32]) -> Snapshot {
    let array = |range: std::ops::Range<usize>| ArrayData::F32(parameters[range].to_vec());
    let arrays = layout
        .parameters()
        .iter()
        .map(|p| (p.name.clone(), Array { shape: p.shape.clone(), data: array(p.range()) }))
        .collect();
    Snapshot { arrays }
}

/// Named arrays as the flat array of a network, or why they are none.
pub(crate) fn flat(layout: &MlpLayout, arrays: &Snapshot) -> Result<Vec<f32>, String> {
    let mut parameters = Vec::with_capacity(layout.len());
    for parameter in layout.parameters() {
        let name = &parameter.name;
        let array = arrays.arrays.get(name).ok_or_else(|| format!("{name} is missing"))?;
        let ArrayData::F32(values) = &array.data else { return Err(format!("{name} is not f32")) };
        if array.shape != parameter.shape || values.len() != parameter.len() {
            return Err(format!("{name} has shape {:?}, expected {:?}", array.shape, parameter.shape));
        }
        if values.iter().any(|value| !value.is_finite()) {
            return Err(format!("{name} holds a value that is not finite"));
        }
        parameters.extend_from_slice(values);
    }
    let unknown = arrays.arrays.keys().find(|name| !layout.parameters().iter().any(|p| p.name == **name));
    match unknown {
        Some(name) => Err(format!("{name} is no array of this network")),
        None => Ok(parameters),
    }
}

/// BLAKE3 over the feature table, hex: names, look-backs and formulas in order.
fn features_hash() -> String {
    let mut hasher = blake3::Hasher::new();
    for feature in &FEATURES {
        hasher.update(format!("{}|{}|{}\n", feature.name, feature.look_back, feature.text).as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(head: Head) -> Policy {
        let mut settings = Settings::default();
        settings.network.head = head;
        settings.network.hidden = vec![8];
        let names = FEATURES.iter().map(|f| f.name.to_string()).collect();
        let normaliser = Normaliser { names, mean: vec![0.1; 48], std: vec![1.0; 48] };
        let layout = network_layout(&settings);
        let arrays = named(&layout, &layout.init(7));
        Policy::new(&settings, normaliser, Some(0.25), &arrays).unwrap()
    }

    /// A reader beside a writer that replaces the policy without a pause gets one or the other, whole.
    #[test]
    fn a_policy_is_read_while_it_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("policy");
        let both = [policy(Head::Exposure), policy(Head::Factored)];
        both[0].save(&folder).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..60).for_each(|i| both[i % 2].save(&folder).unwrap()));
            let mut reads = 0;
            while reads < 20 || !writer.is_finished() {
                let read = Policy::load(dir.path()).unwrap();
                assert!(both.iter().any(|whole| whole.parameters() == read.parameters()));
                reads += 1;
            }
        });
        fs::write(folder.join(ARRAYS), "torn").unwrap();
        assert!(matches!(Policy::load(dir.path()), Err(MLError::CheckpointFile { .. })));
        fs::remove_file(folder.join(ARRAYS)).unwrap();
        let error = Policy::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("policy.safetensors: "), "{error}");
    }

    /// Whatever the head says of returns, a saved policy answers with the same expectations; arrays of another kind or number
    /// of atoms are refused by name.
    #[test]
    fn a_policy_of_distributions_answers_with_expectations() {
        let of = |c51_atoms, quantiles| {
            let mut settings = policy(Head::Branching).settings().clone();
            (settings.network.c51_atoms, settings.network.quantiles) = (c51_atoms, quantiles);
            settings
        };
        let normaliser = policy(Head::Exposure).normaliser().clone();
        let made = |settings: &Settings, arrays: &Snapshot| {
            Policy::new(settings, normaliser.clone(), None, arrays).map_err(|error| error.to_string())
        };
        let arrays = |settings: &Settings| {
            let layout = network_layout(settings);
            named(&layout, &layout.init(5))
        };
        let state = vec![0.3; STATE_DIM];
        for settings in [of(7, 0), of(0, 7)] {
            let dir = tempfile::tempdir().unwrap();
            let mut before = made(&settings, &arrays(&settings)).unwrap();
            before.save(dir.path()).unwrap();
            let mut after = Policy::load(dir.path()).unwrap();
            let q = before.q_values(&state).unwrap();
            assert!(q.len() == 11 && q.iter().all(|q| q.is_finite() && *q != 0.0), "{q:?}");
            assert_eq!(after.q_values(&state).unwrap(), q);
        }
        let refused = made(&of(0, 7), &arrays(&of(7, 0))).unwrap_err();
        assert!(refused.contains("value_quantiles.weight is missing"), "{refused}");
        let refused = made(&of(8, 0), &arrays(&of(7, 0))).unwrap_err();
        assert!(refused.contains("value_logits.weight has shape [7, 8], expected [8, 8]"), "{refused}");
        let refused = made(&of(0, 0), &arrays(&of(7, 0))).unwrap_err();
        assert!(refused.contains("value.weight is missing"), "{refused}");
    }

    #[test]
    fn saved_and_loaded_policies_are_equal_to_the_bit() {
        let dir = tempfile::tempdir().unwrap();
        for head in [Head::Exposure, Head::Factored, Head::Branching] {
            let mut before = policy(head);
            before.save(&dir.path().join("policy")).unwrap();
            // By run folder and by policy folder.
            for path in [dir.path().to_path_buf(), dir.path().join("policy")] {
                let mut after = Policy::load(&path).unwrap();
                assert_eq!(after.parameters(), before.parameters());
                assert_eq!(after.settings(), before.settings());
                assert_eq!(after.normaliser(), before.normaliser());
                assert_eq!(after.tick_size(), Some(0.25));
                let state = [0.25; STATE_DIM];
                assert_eq!(after.q_values(&state).unwrap(), before.q_values(&state).unwrap());
            }
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
        fs::rename(dir.path().join("policy"), dir.path().join("policy.old.tmp")).unwrap();
        Policy::load(dir.path()).unwrap();
    }

    /// Case C12: a NaN in the state is reported before the network can hide it.
    #[test]
    fn a_bad_state_is_refused() {
        let mut policy = policy(Head::Exposure);
        let mut state = [0.0; STATE_DIM];
        state[3] = f32::NAN;
        assert!(matches!(policy.q_values(&state), Err(MLError::InvalidArgument { what: "state", .. })));
        assert!(matches!(policy.q_values(&state[..50]), Err(MLError::Shape { .. })));
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let good = policy(Head::Exposure);
        let attempt = |change: &dyn Fn(&mut Snapshot)| {
            let mut arrays = good.arrays();
            change(&mut arrays);
            Policy::new(good.settings(), good.normaliser().clone(), None, &arrays).unwrap_err().to_string()
        };
        let missing = attempt(&|arrays| drop(arrays.arrays.remove("layer0.bias")));
        assert!(missing.contains("layer0.bias is missing"), "{missing}");
        let nan = attempt(&|arrays| {
            let ArrayData::F32(values) = &mut arrays.arrays.get_mut("layer0.bias").unwrap().data else {
                panic!()
            };
            values[0] = f32::NAN;
        });
        assert!(nan.contains("not finite"), "{nan}");
        let unknown = attempt(&|arrays| {
            let array = arrays.arrays["layer0.bias"].clone();
            arrays.arrays.insert("layer9.bias".into(), array);
        });
        assert!(unknown.contains("layer9.bias"), "{unknown}");
    }

    /// A file of version 1 is read and has no tick size; one that makes no sense is refused.
    #[test]
    fn an_older_policy_has_no_tick_size() {
        let dir = tempfile::tempdir().unwrap();
        policy(Head::Exposure).save(dir.path().join("policy").as_path()).unwrap();
        let path = dir.path().join("policy").join(DOCUMENT);
        let mut older: serde_json::Value = sealed::read(FORMAT, DOCUMENT, &path).unwrap();
        assert_eq!(older.as_object_mut().unwrap().remove("tick_size"), Some(0.25.into()));
        write_sealed(&path, Format { version: 1, ..FORMAT }, &older).unwrap();
        assert_eq!(Policy::load(dir.path()).unwrap().tick_size(), None);
        older["tick_size"] = (-1.0).into();
        write_sealed(&path, FORMAT, &older).unwrap();
        let error = Policy::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("tick_size = -1"), "{error}");
    }

    #[test]
    fn another_feature_table_or_a_torn_file_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("policy");
        policy(Head::Exposure).save(&folder).unwrap();
        let fault = |path: &Path| match Policy::load(path).unwrap_err() {
            MLError::CheckpointFile { fault, .. } => fault,
            other => panic!("{other}"),
        };
        let mut document: Document = sealed::read(FORMAT, DOCUMENT, &folder.join(DOCUMENT)).unwrap();
        let whole = document.clone();
        document.features_hash = "other".into();
        write_sealed(&folder.join(DOCUMENT), FORMAT, &document).unwrap();
        assert!(fault(&folder).to_string().contains("feature table"));
        document = whole.clone();
        document.state_dim = 50;
        write_sealed(&folder.join(DOCUMENT), FORMAT, &document).unwrap();
        assert!(fault(&folder).to_string().contains("50"));
        for (key, spoil) in [
            ("network.hidden", (|s| s.network.hidden = vec![usize::MAX, 2]) as fn(&mut Settings)),
            ("execution.volatility_window", |s| s.execution.volatility_window = 0),
            ("execution.half_spread_bps", |s| s.execution.half_spread_bps = -1e308),
        ] {
            document = whole.clone();
            spoil(&mut document.settings);
            write_sealed(&folder.join(DOCUMENT), FORMAT, &document).unwrap();
            let fault = fault(&folder).to_string();
            assert!(fault.contains(key), "{fault}");
        }
        write_sealed(&folder.join(DOCUMENT), FORMAT, &whole).unwrap();
        Policy::load(&folder).unwrap();
        let arrays = fs::read(folder.join(ARRAYS)).unwrap();
        fs::write(folder.join(ARRAYS), &arrays[..arrays.len() - 1]).unwrap();
        assert!(matches!(fault(&folder), CheckpointFault::Torn { .. }));
        assert_eq!(fault(&dir.path().join("none")), CheckpointFault::Missing);
        fs::create_dir(dir.path().join("empty")).unwrap();
        assert_eq!(fault(&dir.path().join("empty")), CheckpointFault::NoPolicy);
        fs::create_dir(dir.path().join("empty/folds")).unwrap();
        assert_eq!(fault(&dir.path().join("empty")), CheckpointFault::OneEachFold);
    }
}
