//! What the server counts, as Prometheus reads it. No label comes from a client: a name of a state would
//! let anybody with a token make as many series as it likes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// In milliseconds.
const BUCKETS: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 5000, 30000];

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<Labels, u64>>,
    durations: Mutex<BTreeMap<&'static str, Histogram>>,
    versions: AtomicU64,
    bytes_stored: AtomicU64,
    bytes_sent: AtomicU64,
    connections: AtomicU64,
}

/// What a request was: the shape of its path, its deed, and the answer's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Labels {
    pub(crate) route: &'static str,
    pub(crate) deed: &'static str,
    pub(crate) status: u16,
}

#[derive(Clone, Copy, Debug, Default)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: Duration,
}

impl Metrics {
    pub(crate) fn request(&self, labels: Labels, took: Duration) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry(labels).or_default() += 1;
        drop(requests);
        let mut durations = self
            .durations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        durations.entry(labels.deed).or_default().note(took);
    }

    pub(crate) fn stored(&self, bytes: usize) {
        self.versions.fetch_add(1, Relaxed);
        self.bytes_stored.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn sent(&self, bytes: u64) {
        self.bytes_sent.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn connection(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    pub(crate) fn render(&self) -> String {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = requests.clone();
        let durations = self
            .durations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let durations = durations.clone();
        let mut page = Page::default();
        page.head(
            "terrane_requests_total",
            "counter",
            "Requests by route, deed and status.",
        );
        for (labels, count) in &requests {
            let Labels {
                route,
                deed,
                status,
            } = labels;
            page.line(format_args!(
                "terrane_requests_total{{route=\"{route}\",deed=\"{deed}\",status=\"{status}\"}} {count}"
            ));
        }
        page.head(
            "terrane_request_seconds",
            "histogram",
            "How long requests took.",
        );
        for (deed, histogram) in &durations {
            page.histogram(deed, histogram);
        }
        let sum = |is_it: fn(&Labels) -> bool| -> u64 {
            let counted = requests.iter().filter(|(labels, _)| is_it(labels));
            counted.map(|(_, count)| count).sum()
        };
        let conflicts = sum(|labels| labels.deed == "LOCK" && matches!(labels.status, 409 | 423));
        let refused = sum(|labels| {
            labels.route != "other" && (400..500).contains(&labels.status) && labels.status != 404
        });
        for (name, help, value) in [
            (
                "terrane_lock_conflicts_total",
                "Locks that were not granted.",
                conflicts,
            ),
            (
                "terrane_refusals_total",
                "Requests on states that were refused.",
                refused,
            ),
            (
                "terrane_versions_written_total",
                "Versions of states that were stored.",
                self.versions.load(Relaxed),
            ),
            (
                "terrane_stored_bytes_total",
                "Bytes of states that were stored.",
                self.bytes_stored.load(Relaxed),
            ),
            (
                "terrane_sent_bytes_total",
                "Bytes of states that were sent.",
                self.bytes_sent.load(Relaxed),
            ),
            (
                "terrane_connections_total",
                "Connections that were accepted.",
                self.connections.load(Relaxed),
            ),
        ] {
            page.head(name, "counter", help);
            page.line(format_args!("{name} {value}"));
        }
        page.0
    }
}

impl Histogram {
    fn note(&mut self, took: Duration) {
        let millis = took.as_millis();
        for (bucket, limit) in self.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(millis < u128::from(limit));
        }
        self.count += 1;
        self.sum += took;
    }
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn histogram(&mut self, deed: &str, histogram: &Histogram) {
        const NAME: &str = "terrane_request_seconds";
        for (limit, count) in BUCKETS.into_iter().zip(histogram.buckets) {
            let limit = Duration::from_millis(limit).as_secs_f64();
            self.line(format_args!(
                "{NAME}_bucket{{deed=\"{deed}\",le=\"{limit}\"}} {count}"
            ));
        }
        let (count, sum) = (histogram.count, histogram.sum.as_secs_f64());
        self.line(format_args!(
            "{NAME}_bucket{{deed=\"{deed}\",le=\"+Inf\"}} {count}"
        ));
        self.line(format_args!("{NAME}_sum{{deed=\"{deed}\"}} {sum}"));
        self.line(format_args!("{NAME}_count{{deed=\"{deed}\"}} {count}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_prometheus_reads() {
        let metrics = Metrics::default();
        let labels = |deed, status| Labels {
            route: "state",
            deed,
            status,
        };
        metrics.request(labels("LOCK", 200), Duration::from_millis(3));
        metrics.request(labels("LOCK", 423), Duration::from_millis(700));
        metrics.stored(4096);
        let page = metrics.render();
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r#"
        terrane_requests_total{route="state",deed="LOCK",status="200"} 1
        terrane_requests_total{route="state",deed="LOCK",status="423"} 1
        terrane_request_seconds_bucket{deed="LOCK",le="0.001"} 0
        terrane_request_seconds_bucket{deed="LOCK",le="0.002"} 0
        terrane_request_seconds_bucket{deed="LOCK",le="0.005"} 1
        terrane_request_seconds_bucket{deed="LOCK",le="0.01"} 1
        terrane_request_seconds_bucket{deed="LOCK",le="0.025"} 1
        terrane_request_seconds_bucket{deed="LOCK",le="0.05"} 1
        terrane_request_seconds_bucket{deed="LOCK",le="0.1"} 1
        terrane_request_seconds_bucket{deed="LOCK",le="0.25"} 1
        terrane_request_seconds_bucket{deed="LOCK",le="0.5"} 1
        terrane_request_seconds_bucket{deed="LOCK",le="1"} 2
        terrane_request_seconds_bucket{deed="LOCK",le="5"} 2
        terrane_request_seconds_bucket{deed="LOCK",le="30"} 2
        terrane_request_seconds_bucket{deed="LOCK",le="+Inf"} 2
        terrane_request_seconds_sum{deed="LOCK"} 0.703
        terrane_request_seconds_count{deed="LOCK"} 2
        terrane_lock_conflicts_total 1
        terrane_refusals_total 1
        terrane_versions_written_total 1
        terrane_stored_bytes_total 4096
        terrane_sent_bytes_total 0
        terrane_connections_total 0
        "#);
    }
}
