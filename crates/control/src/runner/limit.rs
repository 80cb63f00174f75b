//! How long a stage may take. A limit interrupts the engine, once, and never kills an apply; a hook it ends, and so it does
//! an engine that changes nothing and does not react.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use model::duration;
use tokio::time::Instant;

/// One of a stack's `timeout` block, counted from the moment a stage began to read its values: secrets, and the `init` that
/// it may need, are part of the stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    name: &'static str,
    of: Duration,
    pub(super) until: Instant,
}

impl Limit {
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

/// Waits for somebody else. A stage's time does not run meanwhile.
pub(super) async fn apart_from<T>(limit: &mut Option<Limit>, wait: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let done = wait.await;
    if let Some(limit) = limit {
        limit.until += began.elapsed();
    }
    done
}

/// `timeout { plan = "10m" }`, as it stands in the project file.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = duration::write(self.of);
        write!(f, "timeout {{ {} = \"{length}\" }}", self.name)
    }
}
