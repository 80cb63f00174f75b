//! What happens to a change set after an approval. Pure: the caller collects the facts and obeys.

/// The facts after an approval was recorded.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each from another source"
)]
pub struct AfterApproval {
    /// No approval is missing any more.
    pub is_complete: bool,
    /// The change set is over; only a resume continues it.
    pub is_over: bool,
    /// It waits for a confirmation.
    pub awaits_confirmation: bool,
    /// Its plans are confirmed already.
    pub is_confirmed: bool,
    /// Some of its stacks need nothing more.
    pub can_continue: bool,
    /// Other runs of it are running.
    pub is_at_work: bool,
    /// This machine has its source and its plans.
    pub is_here: bool,
    /// It needs values of the requester, which the approver does not have.
    pub needs_caller: bool,
    /// The project's current rules prevent the start.
    pub is_blocked: bool,
}

/// What happens to the change set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowUp {
    /// It waits for the missing approvals.
    Waits,
    Continues,
    /// Stacks that need no further approval continue.
    ContinuesInPart,
    /// It is over, and a resume continues it.
    Resume,
    /// The project's current rules prevent the start.
    Blocked,
    /// Somebody has to confirm it.
    Confirm {
        by_this_user: bool,
        at: ConfirmPlace,
    },
}

/// Where a change set can be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmPlace {
    Here,
    /// On the machine that planned it.
    PlanningMachine,
    /// Where the variables of the request are set.
    WithVariables,
}

impl AfterApproval {
    /// Approvals of single stacks may still be missing: the others continue first.
    fn is_ready(self) -> bool {
        (self.is_complete || self.can_continue) && self.is_confirmed && self.awaits_confirmation
    }

    /// Whether it matters if the approver may apply the change set.
    pub fn may_begin(self) -> bool {
        !self.is_blocked && (self.is_complete || self.is_at_work || self.is_ready())
    }

    /// Whether the approval starts the change set here. The approved run may start while others are running.
    pub fn starts(self, may_apply: bool) -> bool {
        let has_work = self.is_ready() || self.is_at_work;
        self.may_begin() && may_apply && self.is_here && !self.needs_caller && has_work
    }

    pub fn follow_up(self, may_apply: bool) -> FollowUp {
        let starts = self.starts(may_apply);
        // If not started here, the client or the runners of the change set continue with it.
        let continues =
            starts && self.is_ready() || self.is_complete && (starts || self.is_at_work);
        if continues && self.is_complete {
            FollowUp::Continues
        } else if continues {
            FollowUp::ContinuesInPart
        } else if self.is_complete && self.is_over {
            FollowUp::Resume
        } else if self.is_blocked {
            FollowUp::Blocked
        } else if self.is_complete || self.is_ready() {
            FollowUp::Confirm {
                by_this_user: may_apply && self.may_begin(),
                at: match (self.is_here, self.needs_caller) {
                    (false, _) => ConfirmPlace::PlanningMachine,
                    (true, true) => ConfirmPlace::WithVariables,
                    (true, false) => ConfirmPlace::Here,
                },
            }
        } else {
            FollowUp::Waits
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last approval of a confirmed change set, on the machine that planned it.
    const LAST: AfterApproval = AfterApproval {
        is_complete: true,
        is_over: false,
        awaits_confirmation: true,
        is_confirmed: true,
        can_continue: true,
        is_at_work: false,
        is_here: true,
        needs_caller: false,
        is_blocked: false,
    };

    #[track_caller]
    fn check(facts: AfterApproval, may_apply: bool, starts: bool, expected: FollowUp) {
        assert_eq!(facts.starts(may_apply), starts, "{facts:?}");
        assert_eq!(facts.follow_up(may_apply), expected, "{facts:?}");
    }

    fn confirm(by_this_user: bool, at: ConfirmPlace) -> FollowUp {
        FollowUp::Confirm { by_this_user, at }
    }

    #[test]
    fn the_last_approval_starts_a_confirmed_change_set() {
        check(LAST, true, true, FollowUp::Continues);
        let rest = AfterApproval {
            is_complete: false,
            ..LAST
        };
        check(rest, true, true, FollowUp::ContinuesInPart);
        let at_work = AfterApproval {
            awaits_confirmation: false,
            is_at_work: true,
            ..LAST
        };
        check(at_work, true, true, FollowUp::Continues);
    }

    #[test]
    fn an_approval_by_itself_applies_nothing() {
        let unconfirmed = AfterApproval {
            is_confirmed: false,
            ..LAST
        };
        check(unconfirmed, true, false, confirm(true, ConfirmPlace::Here));
        check(LAST, false, false, confirm(false, ConfirmPlace::Here));
        let more = AfterApproval {
            is_complete: false,
            can_continue: false,
            ..LAST
        };
        check(more, true, false, FollowUp::Waits);
        let at_work = AfterApproval {
            awaits_confirmation: false,
            is_at_work: true,
            ..more
        };
        check(at_work, false, false, FollowUp::Waits);
    }

    #[test]
    fn it_starts_only_where_plans_and_values_are() {
        let elsewhere = AfterApproval {
            is_here: false,
            ..LAST
        };
        let at = ConfirmPlace::PlanningMachine;
        check(elsewhere, true, false, confirm(true, at));
        let values = AfterApproval {
            needs_caller: true,
            ..LAST
        };
        let at = ConfirmPlace::WithVariables;
        check(values, true, false, confirm(true, at));
        let running_elsewhere = AfterApproval {
            awaits_confirmation: false,
            is_at_work: true,
            ..elsewhere
        };
        // Its own runners continue with it.
        check(running_elsewhere, true, false, FollowUp::Continues);
    }

    #[test]
    fn rules_of_today_stop_it_and_a_stopped_one_is_resumed() {
        let blocked = AfterApproval {
            is_blocked: true,
            ..LAST
        };
        check(blocked, true, false, FollowUp::Blocked);
        let over = AfterApproval {
            is_over: true,
            awaits_confirmation: false,
            can_continue: false,
            ..LAST
        };
        check(over, true, false, FollowUp::Resume);
        let over_and_blocked = AfterApproval {
            is_blocked: true,
            ..over
        };
        check(over_and_blocked, true, false, FollowUp::Resume);
    }

    /// Whatever the facts: nothing starts for a user who may not apply it, elsewhere, against the rules, or unconfirmed
    /// and idle.
    #[test]
    fn no_combination_starts_what_must_not_start() {
        for bits in 0..1_u32 << 10 {
            let bit = |n: u32| bits >> n & 1 == 1;
            let facts = AfterApproval {
                is_complete: bit(0),
                is_over: bit(1),
                awaits_confirmation: bit(2),
                is_confirmed: bit(3),
                can_continue: bit(4),
                is_at_work: bit(5),
                is_here: bit(6),
                needs_caller: bit(7),
                is_blocked: bit(8),
            };
            let may_apply = bit(9);
            if facts.starts(may_apply) {
                assert!(may_apply && facts.is_here && !facts.is_blocked, "{facts:?}");
                assert!(!facts.needs_caller, "{facts:?}");
                assert!(facts.is_confirmed || facts.is_at_work, "{facts:?}");
            }
        }
    }
}
