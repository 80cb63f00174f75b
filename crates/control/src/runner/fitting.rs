//! How a plan or preview that was just made stands to what people saw of its run before, and what is kept of it.
//!
//! Not here: what fits (`model::plan::fit`), where it is kept (`fit`), and what follows from it (`plan`).

use std::sync::atomic::Ordering;

use model::preview::Rewritten;

use super::inputs::Inputs;
use super::{Failure, Job};
use crate::fit::{self, FitError, Judged, Occasion, Sight};

/// A plan that was compared; nothing is kept of one that nobody looks at, ever.
pub(super) struct Compared {
    pub(super) judged: Judged,
    fresh: Option<Sight>,
}

/// Of the engine's plan JSON; what a preview added to its source is nobody's.
pub(super) async fn compare(
    job: &Job<'_>,
    json: &[u8],
    inputs: &Inputs,
    rewritten: Option<&Rewritten>,
) -> Result<Compared, Failure> {
    let request = &job.set.request;
    // A review that is not kept is compared with nothing. Where nobody looks, nothing is approved that another plan could
    // be compared with.
    let is_heard = !request.approvals.is_empty() || job.spec.hears_approvals();
    let nobody_looks = job.auto_approve && !is_heard && !job.is_bundled;
    if nobody_looks || (job.review && !job.keeps_plan) {
        return Ok(Compared {
            judged: Judged::default(),
            fresh: None,
        });
    }
    let occasion = Occasion {
        is_confirmed: job.holds_lanes,
        is_reviewed: job.is_bundled && job.auto_approve,
        is_heard,
    };
    let compared = async {
        let mut difference = fit::read(job.control, job.run, job.spec, json).await?;
        if let Some(rewritten) = rewritten {
            difference.leave_out(&rewritten.resource());
        }
        let fresh = Sight {
            difference,
            own_source: job.spec.own_source.clone(),
            inputs: inputs.each.clone(),
        };
        let (set, run) = (job.set.id, job.run);
        let judged = fit::judge(job.control, set, run, job.spec, &fresh, occasion).await?;
        Ok((judged, fresh))
    };
    let (judged, fresh) = compared.await.map_err(|err| failed(&err))?;
    // What was not known when it was approved is known now, and is somebody else's.
    let is_of_others = job.has_other_values.load(Ordering::Relaxed);
    let differs = "other values of its inputs than it was asked for with";
    Ok(Compared {
        judged: if is_of_others {
            judged.differing(differs)
        } else {
            judged
        },
        fresh: Some(fresh),
    })
}

impl Compared {
    /// Keeps what later plans are compared with, and says what it is called. `is_said`: it is applied without another look.
    pub(super) async fn keep(
        self,
        job: &Job<'_>,
        is_said: bool,
    ) -> Result<Option<String>, Failure> {
        let Some(fresh) = self.fresh else {
            return Ok(None);
        };
        let (control, run, spec) = (job.control, job.run, job.spec);
        let kept = if is_said && job.holds_lanes {
            fit::keep_unseen(control, run, spec, self.judged, fresh).await
        } else {
            fit::keep(control, run, spec, self.judged, fresh).await
        };
        kept.map(Some).map_err(|err| failed(&err))
    }
}

fn failed(err: &FitError) -> Failure {
    Failure::because("could not compare the plan", err)
}
