//! The server's metrics, for Prometheus.
//!
//! No label value comes from a client: with the name of a state as a label, a client with a token could
//! create any number of series.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds of the duration buckets, in seconds.
const BUCKETS: [f64; 12] = [
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<MethodLabel, Histogram>,
    lock_conflicts: Counter,
    refusals: Counter,
    versions_written: Counter,
    stored_bytes: Counter,
    sent_bytes: Counter,
    connections: Counter,
}

/// The kind of path a request had, its method, and the status of the response.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) route: &'static str,
    pub(crate) method: &'static str,
    pub(crate) status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabel {
    method: &'static str,
}

/// An extension of the response to a write that stored a new version: its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredBytes(pub(crate) usize);

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("terrane");
        let requests = Family::<RequestLabels, Counter>::default();
        let durations: Family<MethodLabel, Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        registry.register(
            "requests",
            "Requests by route, method and status",
            requests.clone(),
        );
        registry.register(
            "request_seconds",
            "Time to answer a request",
            durations.clone(),
        );
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        Self {
            requests,
            durations,
            lock_conflicts: counter("lock_conflicts", "Locks that were not granted"),
            refusals: counter("refusals", "Requests for states that were refused"),
            versions_written: counter("versions_written", "State versions stored"),
            stored_bytes: counter("stored_bytes", "Bytes of states stored"),
            sent_bytes: counter("sent_bytes", "Bytes of states sent"),
            connections: counter("connections", "Connections accepted"),
            registry,
        }
    }
}

impl Metrics {
    pub(super) fn request(&self, labels: &RequestLabels, took: Duration) {
        let RequestLabels {
            route,
            method,
            status,
        } = *labels;
        self.requests.get_or_create(labels).inc();
        let duration = self.durations.get_or_create(&MethodLabel { method });
        duration.observe(took.as_secs_f64());
        if method == "LOCK" && matches!(status, 409 | 423) {
            self.lock_conflicts.inc();
        }
        if route != "other" && (400..500).contains(&status) && status != 404 {
            self.refusals.inc();
        }
    }

    pub(super) fn version_stored(&self, StoredBytes(bytes): StoredBytes) {
        self.versions_written.inc();
        self.stored_bytes.inc_by(bytes as u64);
    }

    pub(super) fn state_sent(&self, bytes: u64) {
        self.sent_bytes.inc_by(bytes);
    }

    pub(super) fn connection_opened(&self) {
        self.connections.inc();
    }

    /// All metrics, in the text format of `OpenMetrics`.
    pub(crate) fn render(&self) -> String {
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut page, &self.registry);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_page() {
        let metrics = Metrics::default();
        let labels = RequestLabels {
            route: "state",
            method: "LOCK",
            status: 200,
        };
        metrics.request(&labels, Duration::from_millis(3));
        metrics.version_stored(StoredBytes(4096));
        let page = metrics.render();
        for line in [
            "# TYPE terrane_requests counter",
            r#"terrane_requests_total{route="state",method="LOCK",status="200"} 1"#,
            r#"terrane_request_seconds_count{method="LOCK"} 1"#,
            "terrane_versions_written_total 1",
            "terrane_stored_bytes_total 4096",
            "terrane_sent_bytes_total 0",
            "terrane_connections_total 0",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in {page}");
        }
        assert!(page.ends_with("# EOF\n"), "{page}");
    }

    #[test]
    fn refusals_and_lock_conflicts_are_counted() {
        let metrics = Metrics::default();
        for (route, method, status) in [
            ("state", "LOCK", 200),
            ("state", "LOCK", 423),
            ("state", "GET", 404),
            ("state", "POST", 409),
            ("other", "other", 403),
        ] {
            let labels = RequestLabels {
                route,
                method,
                status,
            };
            metrics.request(&labels, Duration::ZERO);
        }
        assert_eq!(metrics.lock_conflicts.get(), 1);
        assert_eq!(metrics.refusals.get(), 2);
    }
}
