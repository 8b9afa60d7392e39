//! A request as a mixed-integer program, written from the rules and not from the code that decides.

use std::collections::BTreeMap;

use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution as _, SolverModel as _, Variable, constraint,
    highs, variable,
};
use placement::{Host, LabelKey, LabelValue};

use crate::sites::{Held, ROOM, State, World, key};

/// What a placement is worth, each summed over the roles; less is better, the first field first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Values {
    /// Squares of a role's hosts per room.
    pub(crate) spread: u32,
    /// Other roles that a host matches.
    pub(crate) wanted_by_others: u32,
    pub(crate) uninspected: u32,
    pub(crate) impaired: u32,
}

/// The best placement.
#[derive(Debug)]
pub(crate) struct Optimum {
    pub(crate) values: Values,
    /// The role of which a member is moved.
    pub(crate) moves: Option<usize>,
    /// Whether a role grows while the domain of a member that it replaces is there for its replacement: the decision's spread is
    /// approximate then.
    pub(crate) grows_beside_replaced: bool,
}

/// What the best placement is worth; None when there is none.
///
/// One member of a cluster is moved at a time: of the first role, by name, whose move leaves enough hosts for all the rest.
pub(crate) fn optimum(world: &World) -> Option<Optimum> {
    let any = Program::new(world);
    let mut moving: Vec<Option<usize>> = any.roles().filter(|role| any.may_move(*role)).map(Some).collect();
    if moving.is_empty() {
        moving.push(None);
    }
    let mut programs = moving.into_iter().map(|moves| Program { world, moves });
    programs.find_map(|program| {
        Some(Optimum {
            values: program.optimum()?,
            moves: program.moves,
            grows_beside_replaced: program.grows_beside_replaced(),
        })
    })
}

pub(crate) struct Program<'a> {
    world: &'a World,
    /// The role of which a member is moved.
    moves: Option<usize>,
}

/// The variables of one program, and its objectives in their order.
struct Written {
    variables: ProblemVariables,
    rules: Vec<good_lp::Constraint>,
    objectives: [Expression; 4],
}

/// What a role's members leave to be found. Each role wants fewer than 20, so that one replacement may be under way.
struct Lack {
    /// Hosts to be found.
    demand: u32,
    /// How many of them replace lost members, or the member that is moved.
    replaced: u32,
    /// Domains in which nobody may come.
    closed: Vec<LabelValue>,
    /// Domains of those that may be replaced: only for replacements.
    yielding: Vec<LabelValue>,
}

impl<'a> Program<'a> {
    /// Of a world in which nobody is moved.
    pub(crate) fn new(world: &'a World) -> Self {
        Self { world, moves: None }
    }

    fn roles(&self) -> std::ops::Range<usize> {
        0..self.world.request.roles.len()
    }

    fn held(&self, role: usize) -> impl Iterator<Item = &'a Held> {
        self.world.held.iter().filter(move |held| held.role == role)
    }

    /// How many members of a role are in such a state.
    fn count(&self, role: usize, is: impl Fn(State) -> bool) -> u32 {
        u32::try_from(self.held(role).filter(|held| is(held.state)).count()).unwrap()
    }

    /// Loads count by who stays and is well.
    fn stays_well(&self, role: usize) -> impl Iterator<Item = &'a Host> {
        let well = self.held(role).filter(|held| held.state.stays_well());
        well.map(|held| &self.world.hosts[held.host])
    }

    /// Whether one of the role's members may be moved, if no other one is: nobody of the cluster is outgoing, and the role's limit of one
    /// replacement allows one more after those of its lost members.
    fn may_move(&self, role: usize) -> bool {
        let is_moving = self.world.held.iter().any(|held| held.state == State::Outgoing);
        let before = self.count(role, |state| state.is_under_way() || state.is_lost());
        !is_moving && before == 0 && self.count(role, |state| state == State::MovePending) > 0
    }

    fn lack(&self, role: usize) -> Lack {
        let wanted = &self.world.request.roles[role];
        let live = self.count(role, State::fills_a_place);
        let again = self.count(role, |state| state == State::LostReplacement);
        let moves = self.moves == Some(role);
        let replaces_lost =
            self.count(role, State::is_under_way) == 0 && self.count(role, State::is_lost) > 0;
        // Whoever is lost while it replaces another one goes first.
        let may_be_replaced = |state: State| match state {
            State::LostReplacement => replaces_lost,
            State::Lost => replaces_lost && again == 0,
            State::MovePending => moves,
            State::Well
            | State::Replacement
            | State::ReleaseRequested
            | State::Outgoing
            | State::Incoming
            | State::Releasing => false,
        };
        let domain = |held: &Held| {
            let key = wanted.topology_key.as_ref()?;
            Some(self.world.hosts[held.host].labels[key].clone())
        };
        let domains = |filter: &dyn Fn(State) -> bool| -> Vec<LabelValue> {
            let held = self.held(role).filter(|held| filter(held.state));
            held.filter_map(domain).collect()
        };
        let used = domains(&|state| !state.is_lost() && state != State::MovePending);
        let (lost, pending) = (
            domains(&State::is_lost),
            domains(&|state| state == State::MovePending),
        );
        let mut yielding = domains(&may_be_replaced);
        // The domain of a member that is moved yields only where no other one is, that of a lost one where all are lost.
        yielding.retain(|domain| {
            let is_here = |other: &&LabelValue| *other == domain;
            let pending = pending.iter().filter(is_here).count();
            !used.contains(domain) && (pending == 0 || pending == 1 && !lost.contains(domain))
        });
        let waiting = lost.iter().chain(&pending);
        let waiting = waiting.filter(|domain| !yielding.contains(domain));
        let replaced = u32::from(replaces_lost) + u32::from(moves);
        Lack {
            demand: wanted.want - live + replaced,
            replaced,
            closed: used.iter().chain(waiting).cloned().collect(),
            yielding,
        }
    }

    fn wanted_by_others(&self, role: usize, host: &Host) -> u32 {
        let others = self
            .world
            .request
            .roles
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != role);
        let matching = others.filter(|(_, other)| other.selector.matches(&host.labels));
        u32::try_from(matching.count()).unwrap()
    }

    fn grows_beside_replaced(&self) -> bool {
        self.roles().any(|role| {
            let lack = self.lack(role);
            lack.demand > lack.replaced && !lack.yielding.is_empty()
        })
    }

    /// What a placement is worth, however it was found.
    pub(crate) fn values(&self, takes: impl Fn(usize, usize) -> bool) -> Values {
        let mut values = Values {
            spread: 0,
            wanted_by_others: 0,
            uninspected: 0,
            impaired: 0,
        };
        for role in self.roles() {
            let mut rooms: BTreeMap<&LabelValue, u32> = BTreeMap::new();
            for host in self.stays_well(role) {
                *rooms.entry(&host.labels[&key(ROOM)]).or_default() += 1;
            }
            for (_, host) in self
                .world
                .hosts
                .iter()
                .enumerate()
                .filter(|(host, _)| takes(role, *host))
            {
                *rooms.entry(&host.labels[&key(ROOM)]).or_default() += 1;
                values.wanted_by_others += self.wanted_by_others(role, host);
                values.uninspected += u32::from(!host.inspected);
                values.impaired += u32::from(!host.powered_on || host.unhealthy);
            }
            values.spread += rooms.values().map(|load| load * load).sum::<u32>();
        }
        values
    }

    /// What the best placement with this move is worth; None when there is none.
    ///
    /// Without presolve: of some 20,000 of these programs it reduced one to a solution that breaks a rule, which ends as an
    /// error of the solver (`HiGHS` 1.15; `SOAK=10 PROPTEST_RNG_SEED=41327445771851937`; ERGO-Code/HiGHS#2402 is of that
    /// kind). Programs of this size are solved as fast without.
    fn optimum(&self) -> Option<Values> {
        let mut reached = [0_u32; 4];
        for objective in 0..reached.len() {
            let Written {
                variables,
                rules,
                objectives,
            } = self.write();
            let mut model = variables
                .minimise(&objectives[objective])
                .using(highs)
                .set_option("presolve", "off");
            for rule in rules {
                model = model.with(rule);
            }
            for (earlier, value) in objectives.iter().zip(reached).take(objective) {
                model = model.with(constraint!(earlier.clone() <= f64::from(value) + 0.5));
            }
            match model.solve() {
                Ok(solution) => reached[objective] = rounded(solution.eval(&objectives[objective])),
                Err(ResolutionError::Infeasible) => return None,
                Err(error) => panic!("the solver failed: {error}"),
            }
        }
        let [spread, wanted_by_others, uninspected, impaired] = reached;
        Some(Values {
            spread,
            wanted_by_others,
            uninspected,
            impaired,
        })
    }

    fn write(&self) -> Written {
        let mut variables = ProblemVariables::new();
        let mut rules = Vec::new();
        let mut objectives = std::array::from_fn(|_| Expression::default());
        let mut roles_of_host: Vec<Expression> = vec![Expression::default(); self.world.hosts.len()];
        for (index, role) in self.world.request.roles.iter().enumerate() {
            let takes = self.takes(index, &mut variables);
            let lack = self.lack(index);
            let all: Expression = takes.iter().map(|(_, take)| *take).sum();
            rules.push(constraint!(all == f64::from(lack.demand)));
            for (host, take) in &takes {
                let known = &self.world.hosts[*host];
                roles_of_host[*host] += *take;
                objectives[1] += f64::from(self.wanted_by_others(index, known)) * *take;
                objectives[2] += f64::from(u8::from(!known.inspected)) * *take;
                objectives[3] += f64::from(u8::from(!known.powered_on || known.unhealthy)) * *take;
            }
            if let Some(topology) = &role.topology_key {
                rules.extend(self.in_domains(&takes, topology, &lack));
            }
            let mut rooms = self.by(&takes, |host| host.labels[&key(ROOM)].clone());
            for host in self.stays_well(index) {
                *rooms.entry(host.labels[&key(ROOM)].clone()).or_default() += 1;
            }
            for room in rooms.into_values() {
                objectives[0] += square(room, role.want, &mut variables, &mut rules);
            }
        }
        rules.extend(roles_of_host.into_iter().map(|roles| constraint!(roles <= 1)));
        Written {
            variables,
            rules,
            objectives,
        }
    }

    /// One of a role in each domain, none where a member needs it, and instead of those that may be replaced only who replaces them.
    fn in_domains(
        &self,
        takes: &[(usize, Variable)],
        topology: &LabelKey,
        lack: &Lack,
    ) -> Vec<good_lp::Constraint> {
        let mut rules = Vec::new();
        let mut replacements = Expression::default();
        for (domain, taken) in self.by(takes, |host| host.labels[topology].clone()) {
            if lack.yielding.contains(&domain) {
                replacements += taken.clone();
            }
            let most = i32::from(!lack.closed.contains(&domain));
            rules.push(constraint!(taken <= most));
        }
        rules.push(constraint!(replacements <= f64::from(lack.replaced)));
        rules
    }

    /// A variable for each host that a role may take.
    fn takes(&self, role: usize, variables: &mut ProblemVariables) -> Vec<(usize, Variable)> {
        let selector = &self.world.request.roles[role].selector;
        let is_held = |host: usize| self.world.held.iter().any(|held| held.host == host);
        let hosts = self.world.hosts.iter().enumerate();
        let fit =
            hosts.filter(|(index, host)| !host.paused && !is_held(*index) && selector.matches(&host.labels));
        fit.map(|(host, _)| (host, variables.add(variable().binary())))
            .collect()
    }

    fn by(
        &self,
        takes: &[(usize, Variable)],
        domain: impl Fn(&Host) -> LabelValue,
    ) -> BTreeMap<LabelValue, Expression> {
        let mut domains: BTreeMap<LabelValue, Expression> = BTreeMap::new();
        for (host, take) in takes {
            *domains.entry(domain(&self.world.hosts[*host])).or_default() += *take;
        }
        domains
    }
}

/// The square of a count, as the sum of the odd numbers up to it: being dearer one after the other, they fill in order.
fn square(
    count: Expression,
    most: u32,
    variables: &mut ProblemVariables,
    rules: &mut Vec<good_lp::Constraint>,
) -> Expression {
    let units: Vec<Variable> = (0..most)
        .map(|_| variables.add(variable().min(0).max(1)))
        .collect();
    let filled: Expression = units.iter().copied().sum();
    rules.push(constraint!(filled == count));
    units
        .iter()
        .zip(0_u32..)
        .map(|(unit, before)| f64::from(2 * before + 1) * *unit)
        .sum()
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a sum of a few dozen small whole numbers"
)]
fn rounded(value: f64) -> u32 {
    value.round() as u32
}
