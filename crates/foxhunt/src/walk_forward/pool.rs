//! Jobs on several threads, fewer where memory does not hold as many.
//!
//! A job that cannot have its memory goes back and its thread ends, as long as another one is at work: what that frees
//! may be enough. Alone, it is tried once more; then the error stands. The first real error stops the others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::MLError;
use crate::trainer::StopSignal;

struct Shared<T> {
    waiting: VecDeque<usize>,
    /// Threads that still take jobs.
    active: usize,
    outcomes: Vec<Option<Result<T, MLError>>>,
}

/// Does jobs 0 to `jobs` with `work`, at most `parallel` at a time, and returns what they gave in order. `work` is given
/// a signal that also tells of another job's failure.
///
/// # Errors
/// The error of the first job in order that failed by itself; [`MLError::Interrupted`] when `stop` asked for it.
pub(super) fn run<T: Send>(
    jobs: usize,
    parallel: usize,
    stop: &dyn StopSignal,
    work: &(dyn Fn(usize, &dyn StopSignal) -> Result<T, MLError> + Sync),
) -> Result<Vec<T>, MLError> {
    let failed = AtomicBool::new(false);
    let outcomes = (0..jobs).map(|_| None).collect();
    let shared = Mutex::new(Shared { waiting: (0..jobs).collect(), active: parallel.max(1), outcomes });
    let take = || {
        let mut alone = false;
        loop {
            let job = {
                let mut shared = lock(&shared);
                match shared.waiting.pop_front() {
                    Some(job) if !failed.load(Ordering::Relaxed) => job,
                    _ => {
                        shared.active -= 1;
                        return;
                    }
                }
            };
            let outcome = work(job, &Either(stop, &failed));
            let mut shared = lock(&shared);
            match outcome {
                Err(MLError::HostMemory { .. } | MLError::GpuMemoryError { .. })
                    if !failed.load(Ordering::Relaxed) && (shared.active > 1 || !alone) =>
                {
                    shared.waiting.push_front(job);
                    if shared.active > 1 {
                        shared.active -= 1;
                        return;
                    }
                    alone = true;
                }
                outcome => {
                    alone = false;
                    if outcome.is_err() {
                        failed.store(true, Ordering::Relaxed);
                    }
                    shared.outcomes[job] = Some(outcome);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..parallel {
            // Fewer threads will do; there is always this one.
            if std::thread::Builder::new().spawn_scoped(scope, take).is_err() {
                lock(&shared).active -= 1;
            }
        }
        take();
    });
    let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    // A real error counts before the interruptions it caused; a job that never began was interrupted.
    let mut results = Vec::with_capacity(jobs);
    let mut interrupted = false;
    for outcome in shared.outcomes {
        match outcome {
            Some(Ok(result)) => results.push(result),
            Some(Err(MLError::Interrupted)) | None => interrupted = true,
            Some(Err(error)) => return Err(error),
        }
    }
    if interrupted { Err(MLError::Interrupted) } else { Ok(results) }
}

fn lock<T>(shared: &Mutex<Shared<T>>) -> MutexGuard<'_, Shared<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two who can ask to stop.
struct Either<'a>(&'a dyn StopSignal, &'a AtomicBool);

impl StopSignal for Either<'_> {
    fn stop_requested(&self) -> bool {
        self.0.stop_requested() || self.1.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;
    use crate::trainer::NeverStop;

    fn full() -> MLError {
        MLError::GpuMemoryError { what: "x", requested: 2, free: 1 }
    }

    #[test]
    fn results_come_in_order_whatever_runs_first() {
        for parallel in [0, 1, 3, 50] {
            let work = |job: usize, _: &dyn StopSignal| {
                std::thread::sleep(Duration::from_millis((7 * job % 5) as u64));
                Ok(job * 10)
            };
            assert_eq!(
                run(9, parallel, &NeverStop, &work).unwrap(),
                (0..9).map(|j| j * 10).collect::<Vec<_>>()
            );
        }
        assert_eq!(run(0, 4, &NeverStop, &|job, _| Ok(job)).unwrap(), Vec::<usize>::new());
    }

    /// Room for two of six: all jobs are done, never more than two at a time once the others gave up.
    #[test]
    fn what_does_not_fit_waits() {
        let at_work = AtomicUsize::new(0);
        let refused = AtomicUsize::new(0);
        let work = |job: usize, _: &dyn StopSignal| {
            if at_work.fetch_add(1, Ordering::SeqCst) >= 2 {
                at_work.fetch_sub(1, Ordering::SeqCst);
                refused.fetch_add(1, Ordering::SeqCst);
                return Err(full());
            }
            std::thread::sleep(Duration::from_millis(5));
            at_work.fetch_sub(1, Ordering::SeqCst);
            Ok(job)
        };
        assert_eq!(run(12, 6, &NeverStop, &work).unwrap(), (0..12).collect::<Vec<_>>());
        assert!(refused.load(Ordering::SeqCst) <= 5, "a thread that was refused does not come back");
    }

    #[test]
    fn what_never_fits_is_an_error() {
        let tries = AtomicUsize::new(0);
        let work = |_: usize, _: &dyn StopSignal| -> Result<(), MLError> {
            tries.fetch_add(1, Ordering::SeqCst);
            Err(full())
        };
        assert!(matches!(run(3, 2, &NeverStop, &work), Err(MLError::GpuMemoryError { .. })));
        assert!((2..=3).contains(&tries.load(Ordering::SeqCst)));
    }

    /// The failure of one stops the rest, and is what is told.
    #[test]
    fn a_failure_stops_the_others() {
        let work = |job: usize, stop: &dyn StopSignal| {
            if job == 2 {
                return Err(MLError::NoMass { rows: 7 });
            }
            while !stop.stop_requested() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err::<(), _>(MLError::Interrupted)
        };
        assert!(matches!(run(20, 3, &NeverStop, &work), Err(MLError::NoMass { rows: 7 })));
        let stop = AtomicBool::new(true);
        assert!(matches!(
            run(20, 3, &stop, &|_, s| {
                assert!(s.stop_requested());
                Err::<(), _>(MLError::Interrupted)
            }),
            Err(MLError::Interrupted)
        ));
    }
}
