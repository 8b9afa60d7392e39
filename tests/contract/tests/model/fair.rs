//! What happens when nothing bad does: every message arrives, the later agent is at work, the disk is fast.

use placement::MemberState;

use crate::{
    agent::Deed,
    balancer::{Balancers, ENTRIES},
    ledger::Held,
    protocol::{Action, Again, Spent, State},
    rare::Rare,
    world::{self, CLUSTERS, HostKey},
};

/// Rounds after which everything must have settled.
const ROUNDS: usize = 24;

/// One round of an agent's, in which everything that is under way arrives, and then one of the load balancers'.
pub(crate) fn round(state: &mut State, agent: u8) {
    without_balancers(state, agent);
    for cluster in (0u8..).take(CLUSTERS) {
        balance(state, cluster);
    }
}

/// One round of an agent's, while load balancers and their agent stand still.
fn without_balancers(state: &mut State, agent: u8) {
    state.step(Action::Look(agent));
    let alive = state
        .scheduler
        .session
        .is_some_and(|session| session.agent == agent && !state.session_is_dead());
    if !alive {
        state.step(Action::Open(agent, None));
    }
    state.step(Action::Report(agent));
    drain(state, agent);
    for cluster in (0u8..).take(CLUSTERS) {
        state.step(Action::Declare(agent, cluster));
        drain(state, agent);
    }
    state.step(Action::Look(agent));
    let releasing: Vec<u8> = state.ledger.releasing().collect();
    for cluster in releasing {
        if state.agents[usize::from(agent)].misses(cluster) {
            state.step(Action::Find(agent, cluster));
        }
    }
    for (cluster, host, deed) in state.agents[usize::from(agent)].deeds(state.mutation) {
        state.step(Action::Act(agent, cluster, host, deed));
    }
    drain(state, agent);
    for cluster in state.scheduler.waits() {
        state.step(Action::Retry(cluster));
        drain(state, agent);
    }
}

/// A cluster's load balancers follow what the status says, and their agent says so.
fn balance(state: &mut State, cluster: u8) {
    for entry in (0u8..).take(ENTRIES) {
        state.step(Action::Render(cluster, entry));
        state.step(Action::Follow(cluster, entry));
    }
    state.step(Action::Drain(cluster));
}

/// Everything under way arrives, of one agent's.
fn drain(state: &mut State, agent: u8) {
    loop {
        let stream = state.agents[usize::from(agent)].stream.as_ref();
        if !state.scheduler.staged.is_empty() {
            state.step(Action::Commit);
        } else if !state.scheduler.unsettled.is_empty() {
            state.step(Action::Settle);
        } else if let Some(request) = state
            .requests
            .iter()
            .find(|request| request.agent == agent)
            .cloned()
        {
            state.step(Action::Serve(request, Again::No));
        } else if let Some(answer) = state
            .answers
            .iter()
            .find(|answer| answer.request.agent == agent)
            .cloned()
        {
            state.step(Action::Hear(answer, Again::No));
        } else if stream.is_some_and(|stream| !stream.queue.is_empty()) {
            state.step(Action::Take(agent));
        } else {
            return;
        }
    }
}

/// Lets everything settle: releases have ended, who is deleted is gone, labels are as the ledger says, and nobody waits for
/// a host that is free. Otherwise, what has not.
pub(crate) fn settle(state: &State) -> Result<(), String> {
    let mut state = state.clone();
    // The earlier agents have died, and what was under way is lost.
    state.paused = None;
    state.requests.clear();
    state.answers.clear();
    state.agents[0].stream = None;
    // A scheduler that has taken in all that a site shows does not believe a status that shows more later. Somebody restarts it.
    let mut statuses = state.world.now.clusters.iter().flatten();
    let is_beyond = statuses.any(|cluster| {
        let status = cluster.status.as_ref();
        status.is_some_and(|status| !status.is_forged && state.is_beyond(status))
    });
    if is_beyond {
        state.step(Action::Crash);
    }
    let mut unsettled = Ok(());
    for _ in 0..ROUNDS {
        let before = state.world.clone();
        round(&mut state, 1);
        unsettled = settled(&state);
        if state.world == before && unsettled.is_ok() {
            return Ok(());
        }
    }
    unsettled.map_err(|what| format!("{what}:\n{:?}\n{:?}", state.world, state.ledger))
}

fn settled(state: &State) -> Result<(), &'static str> {
    let world = &state.world.now;
    let records = &state.ledger.records;
    let mut members = records.values().flat_map(Held::members);
    if members.any(|member| member.releasing) {
        return Err("a release has not ended");
    }
    if world.clusters.iter().flatten().any(|cluster| cluster.deleting) {
        return Err("a cluster that is deleted is still there");
    }
    if state.world.balancers.iter().any(Balancers::has_leftovers) {
        return Err("what no spec names is still there");
    }
    let mut held = [0; CLUSTERS];
    let mut free = [0; CLUSTERS];
    // A member whose mark is forged is never bound; if it is a replacement, no other member is replaced meanwhile.
    let mut replaces_none = [false; CLUSTERS];
    for (index, host) in (0u8..).zip(&world.hosts) {
        let Some(host) = host else { continue };
        let key = HostKey::new(index, host.uid);
        let holder = records
            .iter()
            .find(|(_, held)| held.members().any(|member| member.host == key))
            .map(|(cluster, _)| *cluster);
        // A late call may have declared a cluster that is gone: its hosts are held, which is safe, and reported.
        let nobody = holder.is_some_and(|cluster| world.clusters[usize::from(cluster)].is_none());
        // It is labelled when somebody has removed the mark.
        let faulty = state.shows_forged(key);
        if holder != host.label && !nobody && !faulty {
            return Err("labels are not as the ledger says");
        }
        if let Some(cluster) = holder {
            held[usize::from(cluster)] += 1;
            let record = records.get(&cluster);
            let is_replacement = record.is_some_and(|held| is_replacement(held, key));
            replaces_none[usize::from(cluster)] |= faulty && holder != host.label && is_replacement;
        } else if !faulty && host.address.is_some() {
            // A member of another cluster may be its machine. That one goes on as long as its cluster wants it, or until an operator
            // releases it.
            let is_free = |cluster: u8| {
                let mut others = records.iter().filter(|(other, _)| **other != cluster);
                !others.any(|(_, held)| {
                    let mut members = held.members();
                    members.any(|member| member.host.index == index || member.address == host.address)
                })
            };
            for (cluster, free) in (0u8..).zip(&mut free) {
                *free += usize::from(is_free(cluster));
            }
        }
    }
    for (index, ((held, free), cluster)) in (0u8..).zip(held.into_iter().zip(free).zip(&world.clusters)) {
        let want = cluster.as_ref().map_or(held, |cluster| cluster.want as usize);
        let expected = held + awaited(state, index);
        // All or nothing.
        if expected < want && expected + free >= want && !replaces_none[usize::from(index)] {
            return Err("a cluster waits for hosts that are free");
        }
        if held > want {
            return Err("a cluster has more than it wants");
        }
    }
    Ok(())
}

/// Whether a cluster's member was claimed in the place of another one, and is not bound yet.
fn is_replacement(held: &Held, host: HostKey) -> bool {
    let mut members = held.0.members.iter();
    members.any(|(id, member)| world::host_key(id) == host && member.replaces.is_some())
}

/// Members whose hosts have vanished and may come back: somebody may have paused them before. They fail in time, and the clock stands still.
/// One of which the time is not stored would never fail.
fn awaited(state: &State, cluster: u8) -> usize {
    let record = state.ledger.records.get(&cluster);
    let members = record.into_iter().flat_map(|held| &held.0.members);
    let awaited = members.filter(|(id, member)| {
        member.suspended
            && member.unwell_since.is_some()
            && member.state != MemberState::Releasing
            && state.world.host(world::host_key(id)).is_none()
    });
    awaited.count()
}

/// States to begin with: they are reached by the same steps as all others.
pub(crate) fn beginnings() -> Vec<State> {
    let fresh = State::new([1, 1]);

    // The earlier agent has brought everything into place and was then paused.
    let mut placed = State::new([2, 1]);
    for _ in 0..3 {
        round(&mut placed, 0);
    }

    // It was paused, a host was made again, and the later agent has labelled it: what the earlier one knows of that host
    // is of another.
    let mut remade = placed.clone();
    remade.step(Action::Remake(1, Some(1)));
    remade.step(Action::Make(0));
    remade.step(Action::Scale(0, 2));
    for _ in 0..4 {
        round(&mut remade, 1);
    }

    // A cluster is being released, hosts are being released, and another one waits for them. A pass of an earlier load-balancer agent has read
    // what was before.
    let mut leaving = placed.clone();
    leaving.step(Action::Rare(Rare::Pause(0)));
    leaving.step(Action::Look(1));
    leaving.step(Action::Delete(0));
    leaving.step(Action::Look(1));
    leaving.step(Action::Open(1, None));
    leaving.step(Action::Report(1));
    drain(&mut leaving, 1);
    leaving.step(Action::Declare(1, 0));
    drain(&mut leaving, 1);
    assert_eq!(leaving.agents[1].deeds(None), [], "pods still route to them");
    leaving.step(Action::Rare(Rare::ForgeDrained(0)));
    leaving.step(Action::Look(1));
    assert_eq!(
        leaving.agents[1].deeds(None),
        [],
        "the report is of an earlier epoch"
    );
    balance(&mut leaving, 0);
    leaving.step(Action::Look(1));
    let unlabelled = leaving.agents[1].deeds(None);
    assert_eq!(unlabelled.len(), 2);
    for (cluster, host, deed) in unlabelled {
        assert_eq!(deed, Deed::Unlabel);
        leaving.step(Action::Act(1, cluster, host, deed));
    }

    // The earlier agent has asked for a release, and the call is under way while the cluster is made again.
    let mut late = placed.clone();
    late.step(Action::Delete(0));
    late.step(Action::Look(0));
    late.step(Action::Declare(0, 0));
    late.step(Action::Make(0));
    for _ in 0..3 {
        round(&mut late, 1);
    }

    // A cluster is deleted while load balancers stand still; or its object is taken away too.
    let mut standing = placed.clone();
    standing.step(Action::Delete(0));
    without_balancers(&mut standing, 1);
    let mut stripped = standing.clone();
    stripped.step(Action::Strip(0));
    for state in [&mut standing, &mut stripped] {
        for _ in 0..3 {
            without_balancers(state, 1);
        }
    }

    // One edit drops a load balancer and releases a host. The other load balancer follows; nobody has got to the dropped one yet.
    let mut dropping = placed.clone();
    dropping.step(Action::Name(0, false));
    dropping.step(Action::Scale(0, 1));
    without_balancers(&mut dropping, 1);
    dropping.step(Action::Render(0, 0));
    dropping.step(Action::Follow(0, 0));

    let mut beginnings = vec![fresh, placed, remade, leaving, late, standing, stripped, dropping];
    for state in &mut beginnings {
        state.spent = Spent::default();
    }
    beginnings
}

/// One edit drops a load balancer whose pod has not started yet, and releases the cluster's host. The other load balancer has followed.
pub(crate) fn not_started() -> State {
    let mut state = State::new([1, 1]);
    for _ in 0..3 {
        without_balancers(&mut state, 1);
    }
    state.step(Action::Render(0, 0));
    state.step(Action::Follow(0, 0));
    state.step(Action::Render(0, 1));
    state.step(Action::Name(0, false));
    state.step(Action::Scale(0, 0));
    without_balancers(&mut state, 1);
    state.step(Action::Render(0, 0));
    state.step(Action::Follow(0, 0));
    state.spent = Spent::default();
    state
}

/// A cluster releases two hosts, one after the other. Its load balancers have not followed yet.
pub(crate) fn two_releases() -> State {
    let mut state = State::new([2, 1]);
    for _ in 0..3 {
        round(&mut state, 1);
    }
    for want in [1, 0] {
        state.step(Action::Scale(0, want));
        without_balancers(&mut state, 1);
    }
    state.spent = Spent::default();
    state
}
