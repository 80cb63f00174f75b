//! Runs one function for many files on all processors; results come in the order of the files.

use std::num::NonZeroUsize;
use std::thread;

/// The number of files that justifies a thread.
const SHARE: usize = 16;

pub(super) fn each<T: Sync, R: Send>(items: &[T], action: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = threads.min(items.len() / SHARE);
    if threads < 2 {
        return items.iter().map(action).collect();
    }
    let action = &action;
    let share = |part: &[T]| part.iter().map(action).collect::<Vec<R>>();
    thread::scope(|scope| {
        let parts = items.chunks(items.len().div_ceil(threads));
        let parts: Vec<_> = parts.map(|part| scope.spawn(move || share(part))).collect();
        let ended = parts.into_iter().flat_map(|part| match part.join() {
            Ok(answers) => answers,
            Err(panicked) => std::panic::resume_unwind(panicked),
        });
        ended.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_order() {
        let items: Vec<usize> = (0..1000).collect();
        assert_eq!(each(&items, |item| *item), items);
        assert_eq!(each(&items[..3], |item| *item), [0, 1, 2]);
    }
}
