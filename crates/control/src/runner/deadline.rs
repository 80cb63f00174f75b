//! How long a stage may take. A limit interrupts the engine once, and never kills an apply. It ends a hook,
//! and an engine that changes nothing and does not react.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use model::base::duration;
use tokio::time::Instant;

/// A limit from a stack's `timeout` block. It starts when a stage begins to read its values, so it includes
/// fetching secrets and a required `init`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    name: &'static str,
    of: Duration,
    pub(super) until: Instant,
}

impl Deadline {
    pub(super) fn from_now(name: &'static str, of: Option<Duration>) -> Option<Self> {
        of.map(|of| Self {
            name,
            of,
            until: Instant::now() + of,
        })
    }

    pub(super) fn is_over(self) -> bool {
        self.until <= Instant::now()
    }
}

/// Waits for other processes. This time does not count towards the stage's limit.
pub(super) async fn apart_from<T>(
    limit: &mut Option<Deadline>,
    wait: impl Future<Output = T>,
) -> T {
    let began = Instant::now();
    let done = wait.await;
    if let Some(limit) = limit {
        limit.until += began.elapsed();
    }
    done
}

/// `timeout { plan = "10m" }`, as written in the project file.
impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = duration::write(self.of);
        write!(f, "timeout {{ {} = \"{length}\" }}", self.name)
    }
}
