//! What the coordinator of several workers decides: who takes part, when they begin, who is lost, what came of it.
//! It knows neither sockets nor clocks: it is told what was heard and what time it is, and answers what to say.

use anyhow::{Result, ensure};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::units::format_duration;
use tlsdyno_engine::load::{Outcome, merge};
use tlsdyno_record::model::OnLoss;
use tlsdyno_record::model::job::Reply;
use tlsdyno_record::model::worker::{FromWorker, LoadPlan, SILENCE_NS_MAX, ToWorker, WORD_EVERY_NS};

use super::clock::Clock;

/// Questions about a worker's clock before a start. The soonest answer counts.
const QUESTIONS: usize = 10;

/// How long the questions may take, in nanoseconds, if a worker answers some of them only.
const QUESTIONS_NS_MAX: u64 = 1_000_000_000;

/// From when the start is said until it is, in nanoseconds, beside the longest round trip: enough for each to have gone
/// to sleep again.
const LEAD_NS: u64 = 50_000_000;

/// The same of a load that is one of thousands, as short as they are themselves.
const LEAD_OF_MANY_NS: u64 = 1_000_000;

/// For so long answers are good, in nanoseconds: clocks drift apart by a quarter of a millisecond meanwhile.
const ANSWERS_LAST_NS: u64 = 5_000_000_000;

/// A process that looks at the time and finds so much gone since it last did was stopped itself, in nanoseconds.
pub const ASLEEP_NS: u64 = 2_500_000_000;

#[derive(Clone, Debug)]
pub enum Action {
    Say(usize, ToWorker),
    Send(usize, String),
    /// Close the connection to the worker and forget it.
    Leave(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Idle,
    Preparing,
    Ready,
    Running,
    Done,
    Lost,
}

/// States in which a worker takes part in a run.
const BUSY: [Standing; 3] = [Standing::Preparing, Standing::Ready, Standing::Running];

#[derive(Debug)]
struct Member {
    name: String,
    loops: u32,
    clock: Clock,
    /// What was known of it when the last run began: in an hour clocks drift a fifth of a second apart.
    clock_at_begin: Clock,
    heard_ns: u64,
    /// Number of the last ping and when it left, nanoseconds.
    asked: (u64, u64),
    standing: Standing,
    /// Of each of its loops that has ended, the name and the outcome as JSON: histograms have megabytes, their text has
    /// kilobytes.
    outcomes: Vec<(String, Vec<u8>)>,
}

#[derive(Clone, Debug)]
struct Loss {
    name: String,
    why: String,
    at_ns: u64,
}

#[derive(Debug, Default)]
struct Run {
    /// Time from the message that sets the start until the start, round trips apart.
    lead_ns: u64,
    asking_since_ns: Option<u64>,
    /// Start of the run by the coordinator's clock, nanoseconds.
    begins_ns: Option<u64>,
    /// Why the run cannot begin.
    failed: Option<anyhow::Error>,
    stopping: bool,
    losses: Vec<Loss>,
    /// Workers that took part.
    size: usize,
}

/// The coordinator's decisions. Workers are called by numbers from 0 in the order in which they joined.
#[derive(Debug)]
pub struct Coordinator {
    on_loss: OnLoss,
    members: Vec<Member>,
    run: Option<Run>,
    lost_between: Vec<Loss>,
    pings: u64,
    actions: Vec<Action>,
    /// When the coordinator last learnt the time.
    awake_ns: Option<u64>,
}

impl Coordinator {
    pub fn new(on_loss: OnLoss) -> Coordinator {
        let (members, lost_between, actions) = (Vec::new(), Vec::new(), Vec::new());
        Coordinator { on_loss, members, run: None, lost_between, pings: 0, actions, awake_ns: None }
    }

    /// All workers have joined. Only a worker that leaves from now on counts as lost.
    pub fn is_complete(&mut self) {
        self.lost_between.clear();
    }

    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    pub fn present(&self) -> impl Iterator<Item = usize> {
        let members = self.members.iter().enumerate();
        members.filter(|(_, member)| member.standing != Standing::Lost).map(|(index, _)| index)
    }

    pub fn lost_between(&self) -> Option<String> {
        self.lost_between.first().map(|loss| format!("{} was lost: {}", loss.name, loss.why))
    }

    fn those(&self, standings: &[Standing]) -> Vec<usize> {
        (0..self.members.len()).filter(|index| standings.contains(&self.members[*index].standing)).collect()
    }

    pub fn loops(&self) -> u32 {
        self.present().map(|index| self.members[index].loops).sum()
    }

    /// A worker joined, with so many loops; its number is answered.
    pub fn join(&mut self, name: &str, loops: u32, now_ns: u64) -> usize {
        let index = self.members.len();
        self.members.push(Member {
            name: format!("worker {} ({name})", index + 1),
            loops: loops.max(1),
            clock: Clock::default(),
            clock_at_begin: Clock::default(),
            heard_ns: now_ns,
            asked: (0, now_ns),
            standing: Standing::Idle,
            outcomes: Vec::new(),
        });
        self.say(index, ToWorker::Welcome { number: index as u32 + 1 });
        index
    }

    /// A moment of a worker's clock by the coordinator's.
    pub fn ours(&self, index: usize, theirs_ns: u64) -> u64 {
        self.members[index].clock.ours(theirs_ns)
    }

    pub fn is_running(&self, index: usize) -> bool {
        self.members.get(index).is_some_and(|member| member.standing == Standing::Running)
    }

    /// Whether a worker has nothing more to do in this run.
    pub fn has_run(&self, index: usize) -> bool {
        let done = [Standing::Done, Standing::Lost];
        self.members.get(index).is_some_and(|member| done.contains(&member.standing))
    }

    pub fn start(&mut self, load: &LoadPlan, now_ns: u64) {
        let present = || self.members.iter().filter(|member| member.standing != Standing::Lost);
        let loops: u32 = present().map(|member| member.loops).sum();
        let is_slice = load.held.as_ref().is_some_and(|held| held.is_slice);
        let lead_ns = if is_slice { LEAD_OF_MANY_NS } else { LEAD_NS };
        let mut run = Run { size: present().count(), lead_ns, ..Run::default() };
        let lost = std::mem::take(&mut self.lost_between);
        if let Some(loss) = lost.first().filter(|_| self.on_loss == OnLoss::Stop || run.size == 0) {
            let error = anyhow::anyhow!("{} was lost before the load began: {}", loss.name, loss.why);
            self.run = Some(Run { failed: Some(Fault::Unreachable.wrap(error)), ..run });
            return;
        }
        run.losses = lost;
        run.size += run.losses.len();
        self.run = Some(run);
        let mut before_count = 0;
        for index in self.present().collect::<Vec<_>>() {
            let member = &mut self.members[index];
            (member.standing, member.outcomes) = (Standing::Preparing, Vec::new());
            let part = LoadPlan { before_count, loops, ..load.clone() };
            before_count += member.loops;
            self.say(index, ToWorker::Load(Box::new(part)));
            if is_slice {
                // One load of thousands: the clocks are asked in passing.
                self.ping(index, now_ns);
            }
        }
    }

    /// The start of the run, by the coordinator's clock, once it is set.
    pub fn begins_ns(&self) -> Option<u64> {
        self.run.as_ref()?.begins_ns
    }

    pub fn ask(&mut self, index: usize) {
        self.say(index, ToWorker::Ask);
    }

    /// Ends the run early; what was measured counts.
    pub fn stop(&mut self) {
        if self.run.as_mut().is_none_or(|run| std::mem::replace(&mut run.stopping, true)) {
            return;
        }
        self.those(&BUSY).into_iter().for_each(|index| self.say(index, ToWorker::Stop));
    }

    /// A worker is gone: its connection broke, or it says what cannot be.
    pub fn lose(&mut self, index: usize, why: &str, now_ns: u64) {
        let member = &mut self.members[index];
        let before = std::mem::replace(&mut member.standing, Standing::Lost);
        if before == Standing::Lost {
            return;
        }
        // What a worker had told in full counts, whatever becomes of it then.
        if before != Standing::Done {
            member.outcomes.clear();
        }
        let loss = Loss { name: member.name.clone(), why: why.to_owned(), at_ns: now_ns };
        self.actions.push(Action::Leave(index));
        let Some(run) = &mut self.run else {
            self.lost_between.push(loss);
            return;
        };
        match (before, run.begins_ns) {
            (Standing::Preparing | Standing::Ready, None) => {
                let error = anyhow::anyhow!("{} was lost before the load began: {why}", loss.name);
                run.failed.get_or_insert(Fault::Unreachable.wrap(error));
                self.stop();
                // Whoever goes on with the others is told with the next run.
                self.lost_between.push(loss);
            }
            (Standing::Running, _) => {
                run.losses.push(loss);
                if self.on_loss == OnLoss::Stop {
                    self.stop();
                }
            }
            _ => {}
        }
    }

    /// Something came from a worker, perhaps not a whole line yet.
    pub fn note_life(&mut self, index: usize, now_ns: u64) {
        self.members[index].heard_ns = now_ns;
    }

    /// A worker said something.
    pub fn hear(&mut self, index: usize, message: FromWorker, now_ns: u64) -> Result<()> {
        let member = &mut self.members[index];
        if member.standing == Standing::Lost {
            return Ok(());
        }
        member.heard_ns = now_ns;
        match message {
            FromWorker::Pong { number, at_ns } if number == member.asked.0 => {
                member.clock.note(member.asked.1, at_ns, now_ns);
                let more =
                    self.run.as_ref().is_some_and(|run| run.asking_since_ns.is_some() && run.begins_ns.is_none());
                if more && member.clock.answers() < QUESTIONS {
                    self.ping(index, now_ns);
                }
            }
            FromWorker::Pong { .. } => {}
            FromWorker::Wants { hashes } => {
                ensure!(member.standing == Standing::Preparing, "it wants data for nothing");
                self.actions.extend(hashes.into_iter().map(|hash| Action::Send(index, hash)));
            }
            FromWorker::Reply(Reply::Ready(_)) => {
                ensure!(member.standing == Standing::Preparing, "it is ready for nothing");
                member.standing = Standing::Ready;
            }
            FromWorker::Reply(Reply::Outcome { name, outcome, .. }) => {
                ensure!(member.standing == Standing::Running, "it tells of a load that it does not make");
                member.outcomes.push((name, serde_json::to_vec(&outcome)?));
                if member.outcomes.len() == member.loops as usize {
                    member.standing = Standing::Done;
                }
            }
            FromWorker::Reply(Reply::Error { message, .. }) => {
                let is_part = BUSY.contains(&member.standing);
                member.standing = Standing::Idle;
                if let (Some(run), true) = (&mut self.run, is_part) {
                    // One that was told to stop before it began says so here.
                    if !run.stopping {
                        run.failed
                            .get_or_insert(Fault::Environment.wrap(anyhow::anyhow!("{}: {message}", member.name)));
                    }
                    self.stop();
                }
            }
            FromWorker::Hello { .. }
            | FromWorker::Here
            | FromWorker::ConnectsFrom { .. }
            | FromWorker::Seen(_)
            | FromWorker::Reply(Reply::Begun { .. })
            | FromWorker::Progress { .. } => {}
        }
        Ok(())
    }

    /// The time: signs of life are due, silences are over, the start can be set.
    pub fn tell_time(&mut self, now_ns: u64) {
        let before_ns = self.awake_ns.replace(now_ns).unwrap_or(now_ns);
        let slept_ns = now_ns.saturating_sub(before_ns);
        if slept_ns > ASLEEP_NS {
            // Who was not awake heard nobody: that is not their silence.
            self.members.iter_mut().for_each(|member| member.heard_ns += slept_ns);
        }
        for index in self.present().collect::<Vec<_>>() {
            let member = &self.members[index];
            if now_ns.saturating_sub(member.heard_ns) > SILENCE_NS_MAX {
                self.lose(index, "it was silent for 5 s", now_ns);
            } else if now_ns.saturating_sub(member.asked.1) >= WORD_EVERY_NS {
                self.ping(index, now_ns);
            }
        }
        self.begin(now_ns);
    }

    /// When [`Coordinator::tell_time`] is due at the latest if nothing is heard, in nanoseconds from now.
    pub fn due_in_ns(&self, now_ns: u64) -> u64 {
        let present = self.members.iter().filter(|member| member.standing != Standing::Lost);
        let due = present.map(|member| (member.asked.1 + WORD_EVERY_NS).saturating_sub(now_ns)).min();
        due.unwrap_or(WORD_EVERY_NS).min(WORD_EVERY_NS)
    }

    /// Asks for the clocks when all are ready, and says when to begin once they are known.
    fn begin(&mut self, now_ns: u64) {
        let taking_part = self.members.iter().filter(|member| member.standing != Standing::Lost);
        let all_ready = taking_part.clone().all(|member| member.standing == Standing::Ready);
        let Some(run) = &mut self.run else { return };
        if !all_ready || run.stopping || run.begins_ns.is_some() {
            return;
        }
        let good_since_ns = now_ns.saturating_sub(ANSWERS_LAST_NS);
        let is_known = |member: &Member| member.clock.answers_since(good_since_ns) >= QUESTIONS;
        if !taking_part.clone().all(is_known) {
            let Some(since_ns) = run.asking_since_ns else {
                run.asking_since_ns = Some(now_ns);
                for index in self.those(&[Standing::Ready]) {
                    self.members[index].clock.forget();
                    self.ping(index, now_ns);
                }
                return;
            };
            let fewest = taking_part.clone().map(|member| member.clock.answers()).min().unwrap_or(0);
            if fewest == 0 || now_ns.saturating_sub(since_ns) <= QUESTIONS_NS_MAX {
                return;
            }
        }
        let longest_ns = taking_part.map(|member| member.clock.trip_ns()).max().unwrap_or(0);
        let begins_ns = now_ns + run.lead_ns + 2 * longest_ns;
        run.begins_ns = Some(begins_ns);
        for index in self.those(&[Standing::Ready]) {
            let member = &mut self.members[index];
            member.standing = Standing::Running;
            member.clock_at_begin = member.clock.clone();
            let at_ns = member.clock.theirs(begins_ns);
            self.say(index, ToWorker::Begin { at_ns });
        }
    }

    /// Whether the run is over: nobody is doing anything for it any more.
    pub fn is_over(&self) -> bool {
        self.those(&BUSY).is_empty()
    }

    /// What came of the run: what all loops of all workers did, merged, and who was lost.
    pub fn finish(&mut self) -> Result<Outcome> {
        let run = self.run.take().unwrap_or_default();
        if let Some(error) = run.failed {
            return Err(error);
        }
        let loops = self.members.iter_mut().flat_map(|member| {
            if member.standing == Standing::Done {
                member.standing = Standing::Idle;
            }
            let texts = std::mem::take(&mut member.outcomes);
            let (several, member) = (texts.len() > 1, &*member);
            texts.into_iter().map(move |(name, text)| {
                let name = if several { format!("{}, {name}", member.name) } else { member.name.clone() };
                let outcome: Outcome = serde_json::from_slice(&text).expect("this was written here");
                (name, Outcome { began_ns: member.clock_at_begin.ours(outcome.began_ns), ..outcome })
            })
        });
        let merged = merge(loops);
        let began_ns = run.begins_ns.unwrap_or(0);
        let left = run.size - run.losses.len();
        let went_on = self.on_loss == OnLoss::GoOn;
        let message = |Loss { name, why, at_ns }: &Loss| {
            let after = format_duration(at_ns.saturating_sub(began_ns) as f64);
            let all = run.size;
            let rest = match went_on {
                true => format!("the other {left} of {all} went on: from then on the load was {left}/{all} of it"),
                false => "the others were stopped (--on-loss go-on lets them go on)".to_owned(),
            };
            format!("{name} was lost after {after}: {why}. What it did is not in the result; {rest}")
        };
        let nobody = || match run.losses.first() {
            Some(loss) => anyhow::anyhow!("{} was lost ({}), and no other is left", loss.name, loss.why),
            None => anyhow::anyhow!("the load was stopped before it began"),
        };
        let fault = if run.losses.is_empty() { Fault::Interrupted } else { Fault::Unreachable };
        let mut outcome = merged.ok_or_else(nobody).or_fault(fault)?;
        outcome.losses = run.losses.iter().map(message).collect();
        if !outcome.losses.is_empty() && !went_on {
            // The loss stopped it, not a person.
            outcome.stopped = false;
        }
        Ok(outcome)
    }

    fn ping(&mut self, index: usize, now_ns: u64) {
        self.pings += 1;
        self.members[index].asked = (self.pings, now_ns);
        self.say(index, ToWorker::Ping { number: self.pings });
    }

    fn say(&mut self, index: usize, message: ToWorker) {
        self.actions.push(Action::Say(index, message));
    }
}
