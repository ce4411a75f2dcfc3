//! A collector's state to named arrays and back, the same for every engine.

use foxhunt_ops::collect::{CollectConfig, CollectState, Group, Tally, count};
use foxhunt_ops::env_step::EnvState;
use foxhunt_ops::n_step::NStepState;

use super::Snapshot;
use super::arrays::{
    MAX_COUNT, fault_words, faults_of, get_counts, get_f32, get_f64, get_u32, misfit, put_f32, put_f64,
    put_u32, put_u64,
};
use crate::MLError;

/// f64 and u32 words of an [`EnvState`] in a snapshot.
const ENV_F64: usize = 4;
const ENV_U32: usize = 6;
/// f64 and u32 words of a [`Group`].
const GROUP_F64: usize = 4;
const GROUP_U32: usize = 4;

/// Arrays `env.*`, `n_step.*` and `collect.*`.
pub(crate) fn save(state: CollectState, snapshot: &mut Snapshot) {
    let CollectState { envs, n_step, vector_step, tally } = state;
    let floats = envs.iter().flat_map(|e| [e.cash, e.position, e.entry_price, e.equity]);
    put_f64(snapshot, "env.money", floats.collect());
    let words =
        envs.iter().flat_map(|e| [e.bar, e.end_bar, e.bars_in_position, e.level, e.episode, e.start_bar]);
    put_u32(snapshot, "env.words", words.collect());
    put_u64(snapshot, "env.vector_step", vec![vector_step]);
    let NStepState { states, newest, actions, rewards, heads, lens } = n_step;
    put_f32(snapshot, "n_step.states", states);
    put_f32(snapshot, "n_step.newest", newest);
    put_u32(snapshot, "n_step.actions", actions);
    put_f32(snapshot, "n_step.rewards", rewards);
    put_u32(snapshot, "n_step.heads", heads);
    put_u32(snapshot, "n_step.lens", lens);

    let Tally { env_steps, counts, groups, faults, faults_lost } = tally;
    put_u64(snapshot, "collect.env_steps", vec![env_steps, faults_lost]);
    put_u64(snapshot, "collect.counts", counts);
    let sums = groups.iter().flat_map(|g| [g.reward, g.episode_log_return, g.max_q, g.q_sum]);
    put_f64(snapshot, "collect.sums", sums.collect());
    let ranges = groups.iter().flat_map(|g| [g.q_low, g.q_high, g.q_finite, g.q_non_finite]);
    put_u32(snapshot, "collect.ranges", ranges.collect());
    put_u64(snapshot, "collect.faults", fault_words(&faults));
}

/// What [`save`] saved.
pub(crate) fn load(config: &CollectConfig, snapshot: &Snapshot) -> Result<CollectState, MLError> {
    let (n_envs, n_groups) = (config.n_envs, config.n_groups());
    let money = get_f64(snapshot, "env.money", Some(n_envs * ENV_F64))?;
    let words = get_u32(snapshot, "env.words", Some(n_envs * ENV_U32))?;
    let envs = money.chunks_exact(ENV_F64).zip(words.chunks_exact(ENV_U32)).map(|(m, w)| EnvState {
        cash: m[0],
        position: m[1],
        entry_price: m[2],
        equity: m[3],
        bar: w[0],
        end_bar: w[1],
        bars_in_position: w[2],
        level: w[3],
        episode: w[4],
        start_bar: w[5],
    });
    let n_step = NStepState {
        states: get_f32(snapshot, "n_step.states", None)?.to_vec(),
        newest: get_f32(snapshot, "n_step.newest", None)?.to_vec(),
        actions: get_u32(snapshot, "n_step.actions", None)?.to_vec(),
        rewards: get_f32(snapshot, "n_step.rewards", None)?.to_vec(),
        heads: get_u32(snapshot, "n_step.heads", None)?.to_vec(),
        lens: get_u32(snapshot, "n_step.lens", None)?.to_vec(),
    };
    let vector_step = get_counts(snapshot, "env.vector_step", Some(1))?[0];
    if vector_step > MAX_COUNT / n_envs as u64 {
        return Err(misfit(format!("env.vector_step counts to {vector_step}, which no run reaches")));
    }
    let steps = get_counts(snapshot, "collect.env_steps", Some(2))?;
    let sums = get_f64(snapshot, "collect.sums", Some(n_groups * GROUP_F64))?;
    let ranges = get_u32(snapshot, "collect.ranges", Some(n_groups * GROUP_U32))?;
    let groups = sums.chunks_exact(GROUP_F64).zip(ranges.chunks_exact(GROUP_U32)).map(|(s, r)| Group {
        reward: s[0],
        episode_log_return: s[1],
        max_q: s[2],
        q_sum: s[3],
        q_low: r[0],
        q_high: r[1],
        q_finite: r[2],
        q_non_finite: r[3],
    });
    Ok(CollectState {
        envs: envs.collect(),
        n_step,
        vector_step,
        tally: Tally {
            env_steps: steps[0],
            counts: get_counts(snapshot, "collect.counts", Some(count::LEN))?.to_vec(),
            groups: groups.collect(),
            faults: faults_of(snapshot, "collect.faults")?,
            faults_lost: steps[1],
        },
    })
}
