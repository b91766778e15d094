package cli

// Commands are the commands that talk to the API. They are embedded in fanout's own
// command line, which so lists them.
type Commands struct {
	Triage      triageCmd      `cmd:"" group:"Over the API" help:"Say what is the matter, why, and what to follow; exit code 3 if somebody must act now."`
	Status      statusCmd      `cmd:"" group:"Over the API" help:"Show the service on one screen."`
	Subscribers subscribersCmd `cmd:"" group:"Over the API" help:"Register endpoints, change them, see how they are served."`
	Events      eventsCmd      `cmd:"" group:"Over the API" help:"Post events and see what became of them."`
	Deliveries  deliveriesCmd  `cmd:"" group:"Over the API" help:"List, show, retry and cancel deliveries."`
	Dead        deadCmd        `cmd:"" group:"Over the API" help:"List, show and discard dead letters."`
	Redrive     redriveCmd     `cmd:"" group:"Over the API" help:"Send dead letters again: one canary, a look at the effect, then the others at a pace."`
	Keys        keysCmd        `cmd:"" group:"Over the API" help:"Make, list and revoke keys of the API."`
	Audit       auditCmd       `cmd:"" group:"Over the API" help:"Who changed what, when and why; newest first."`
	Explain     explainCmd     `cmd:"" group:"Over the API" help:"Say in sentences what happened to a delivery and what comes next."`
	Tail        tailCmd        `cmd:"" group:"Over the API" help:"Follow a subscriber's deliveries, a line for each change."`
	Trigger     triggerCmd     `cmd:"" group:"Over the API" help:"Post a shipment event as a real one would be, to see what it does."`
	Listen      listenCmd      `cmd:"" group:"Over the API" help:"Receive webhooks here and show them, well behaved or not."`
}
