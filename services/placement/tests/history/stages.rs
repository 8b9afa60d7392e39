//! The stages of members through a history: each changes only as the written account allows.

use std::collections::BTreeMap;

use placement::life::{Actor, Circumstances, Stage, TRANSITIONS, Transition};
use placement::{FailReason, HostId, Replaces};

use crate::event::Event;
use crate::world::{Mem, Tenant, World};

/// Stages by cluster and host.
pub(crate) type Stages = BTreeMap<(usize, HostId), Stage>;

pub(crate) fn all(world: &World) -> Stages {
    let tenants = world.tenants.iter().enumerate();
    let members = tenants.flat_map(|(index, tenant)| {
        let stage = move |mem: &Mem| ((index, mem.record.host.clone()), stage(world, tenant, mem));
        tenant.members.iter().map(stage)
    });
    members.collect()
}

fn stage(world: &World, tenant: &Tenant, mem: &Mem) -> Stage {
    let record = &mem.record;
    let is_there = world
        .site
        .get(&record.host.name)
        .is_some_and(|host| host.id == record.host);
    let waits = match record.failed {
        Some(FailReason::MoveRequested) => true,
        Some(
            FailReason::Gone
            | FailReason::MarkedFailed
            | FailReason::InError
            | FailReason::UsedBeforeLabelled
            | FailReason::WriteRefused,
        ) => false,
        None => !is_there,
    };
    let comes = |other: &Mem| {
        other.record.role == record.role
            && other.record.replaces == Some(Replaces::Beside(record.host.clone()))
            && matches!(other.record.failed, None | Some(FailReason::MoveRequested))
            && Stage::of_member(
                &other.record,
                Circumstances {
                    failed: None,
                    paired: false,
                },
            ) != Stage::Releasing
    };
    let circumstances = Circumstances {
        failed: record.failed,
        paired: waits && tenant.members.iter().any(comes),
    };
    Stage::of_member(record, circumstances)
}

/// Who may have made the transitions that follow from an event; None: nobody knows what was before.
pub(crate) fn makers(event: &Event) -> Option<&'static [Actor]> {
    match event {
        Event::Bind(_) | Event::Unlabel(_) | Event::Free(_) | Event::Delete(_) => {
            Some(&[Actor::ClusterAgent])
        }
        Event::Fail(_)
        | Event::Outage(_)
        | Event::Move(_)
        | Event::Clear(_)
        | Event::Pause(_)
        | Event::Refuse(_)
        | Event::Relabel(..)
        | Event::Cordon(_) => Some(&[Actor::Person, Actor::Site]),
        // A member in error counts as failed or not by what the spec says.
        Event::ReplaceAfterError(_) => Some(&[Actor::Person]),
        Event::Consume(_)
        | Event::LateClaim(_)
        | Event::LetGo(_)
        | Event::Vanish(_)
        | Event::Return(_)
        | Event::MadeAgain(_)
        | Event::Restored(_)
        | Event::InError(_)
        | Event::GraceOver => Some(&[Actor::Site]),
        Event::Want(..)
        | Event::RemoveRole(_)
        | Event::TopologyKey(_)
        | Event::Select(..)
        | Event::Networks(_)
        | Event::Address(..)
        | Event::Quota(_)
        | Event::CordonDomain(_)
        | Event::PreferNamespace
        | Event::MadeAgainCluster(_) => Some(&[]),
        Event::LoseLedger => None,
    }
}

/// Whether every change is one that these can make. `undecided`: nothing was decided since the event before, so that it may undo that.
pub(crate) fn follow(before: &Stages, after: &Stages, by: &[Actor], undecided: bool) -> Result<(), String> {
    let members = before.keys().chain(after.keys());
    for member in members {
        let (from, to) = (before.get(member).copied(), after.get(member).copied());
        let leads = |row: &Transition, from: Option<Stage>, to: Option<Stage>| {
            from.map_or(row.from.is_empty(), |stage| row.from.contains(&stage))
                && to.map_or(row.to.is_empty(), |stage| row.to.contains(&stage))
        };
        let is_made = |row: &&Transition| row.by.iter().any(|who| by.contains(who)) && leads(row, from, to);
        let is_undone = |row: &&Transition| {
            undecided
                && row
                    .by
                    .iter()
                    .any(|who| [Actor::Person, Actor::Site].contains(who))
                && leads(row, to, from)
        };
        if from != to && !TRANSITIONS.iter().any(|row| is_made(&row) || is_undone(&row)) {
            return Err(format!("{}: {from:?} becomes {to:?} by {by:?}", member.1));
        }
    }
    Ok(())
}
