//! Draining: before a cluster is destroyed, deletes what it created outside itself. Nothing else has a record
//! of it.

use std::fs;
use std::time::Duration;

use model::run::Stage;
use model::stage::StageBlock;
use model::stage::drain::{DrainEnd, DrainReport, clusters};
use serde_json::json;

use super::{Failure, StageJob, count, part_of};
use crate::stage::cluster::ClusterContext;
use crate::stage::drain::{self, DrainProgress};

/// How long the deletion of load balancers and disks may take.
const LIMIT: Duration = Duration::from_mins(15);

const NO_WAY: &str = "resources that the cluster created outside of itself must be removed first; if the cluster no longer \
                      exists, remove the `bootstrap` block from the project, then destroy again";

/// Drains the clusters that the stack's `bootstrap` blocks name, if the stack is to be destroyed. Returns
/// whether there was one.
pub(in crate::runner) async fn before_destroy(job: &StageJob<'_>) -> Result<bool, Failure> {
    let blocks: Vec<StageBlock> = job
        .spec
        .stack
        .stages
        .bootstrap
        .iter()
        .filter_map(cluster_of)
        .collect();
    if !job.spec.destroy || blocks.is_empty() {
        return Ok(false);
    }
    let mut interrupts = job.interrupts.lock().await;
    let drained = tokio::select! {
        drained = drain_all(job, &blocks) => drained,
        () = interrupts.next() => Err(Failure::interrupted()),
    };
    drop(fs::remove_file(job.control.home.run_waits(job.run)));
    drained
        .map(|()| true)
        .map_err(|failure| failure.during("draining its cluster"))
}

/// Reduces a block to its `kubeconfig`. Draining needs nothing else.
fn cluster_of(block: &StageBlock) -> Option<StageBlock> {
    let kubeconfig = block.attrs.get_key_value("kubeconfig")?;
    Some(StageBlock {
        attrs: [(kubeconfig.0.clone(), kubeconfig.1.clone())].into(),
        blocks: Vec::new(),
        ..block.clone()
    })
}

async fn drain_all(job: &StageJob<'_>, blocks: &[StageBlock]) -> Result<(), Failure> {
    let part = part_of(job, Stage::Bootstrapping, blocks).await?;
    let resolved = match part.values.resolve(blocks) {
        Ok(resolved) => resolved,
        // A stack that was never applied created no cluster.
        Err(_) if part.values.outputs().is_empty() => {
            job.warn("no cluster was drained: the stack has no outputs");
            return Ok(());
        }
        Err(err) => return Err(not_found(&err)),
    };
    let configs = clusters(&resolved).map_err(|err| not_found(&err))?;
    let cluster = ClusterContext {
        source: part.root,
        env: &part.env,
        hidden: &part.hidden,
        cache: &job.control.cache,
        held: None,
    };
    for config in &configs {
        let mut said = |progress: DrainProgress<'_>| {
            let words = match progress {
                DrainProgress::Suspended(object) => format!("no longer reconciled: {object}"),
                DrainProgress::ScaledDown(object) => format!("scaled down: {object}"),
                DrainProgress::Deleted(object) => format!("deleted: {object}"),
                DrainProgress::Waiting(left) => {
                    let mut words = format!("{} left", count(left.len(), "object"));
                    if let Some(first) = left.first() {
                        let more = left.len() - 1;
                        words = format!("{words}: {first}");
                        if more > 0 {
                            words = format!("{words}, and {more} more");
                        }
                    }
                    words
                }
            };
            part.log.say(&words);
            // Shows attached clients that the engine has not begun. If the note cannot be written, draining
            // continues.
            let note = job.control.home.run_waits(job.run);
            drop(fs::write(note, format!("drains its cluster: {words}")));
        };
        let note = job.control.home.run_waits(job.run);
        let begun = format!("drains its cluster: contacts `{}`", config.server);
        drop(fs::write(note, begun));
        let report = drain::run(config, cluster, LIMIT, &mut said).await;
        match &report.end {
            DrainEnd::Empty => {}
            DrainEnd::Unreachable { why } => job.warn(&format!(
                "`{}` does not answer and was not drained: {why}; check for load balancers and disks that it left behind",
                report.server
            )),
            DrainEnd::TimedOut => {
                let why = "objects in the cluster were not removed in time";
                let hint = "remove these objects, then destroy again; otherwise, the load balancers and disks that they created would be left behind";
                return Err(stays(&report, why).hint(hint));
            }
            DrainEnd::Failed { why } => return Err(stays(&report, why).hint(NO_WAY)),
        }
    }
    Ok(())
}

fn not_found(err: &dyn std::error::Error) -> Failure {
    Failure::because("nothing was destroyed: could not find its cluster", err).hint(NO_WAY)
}

fn stays(report: &DrainReport, why: &str) -> Failure {
    let mut lines = vec![format!("nothing was destroyed: {why}")];
    lines.extend(report.remaining.iter().map(|left| format!("  {left}")));
    let mut failure = Failure::new(lines.join("\n"));
    failure.report = Some(Box::new(json!(report)));
    failure
}
