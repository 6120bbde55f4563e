package fencetest

// check is one thing that every gate must do, on a fresh resource.
type check struct {
	name string
	run  func(*world)
}

// checks is the contract. The letters are rules of PROTOCOL.
var checks = []check{
	// The verdict (E2).
	{"EqualIsAccepted", checkEqual},
	{"OrderOfVerdicts", checkOrderOfVerdicts},
	{"MalformedIsRefused", checkMalformed},
	{"LargeNumbers", checkLargeNumbers},
	{"Revocation", checkRevocation},
	{"SharedRefused", checkSharedRefused},
	{"SharedAllowed", checkSharedAllowed},
	{"Slots", checkSlots},
	{"LockNames", checkLockNames},

	// The mark (DESIGN §7.3–4).
	{"MarkSurvivesReopen", checkReopen},
	{"FailedWritesKeepTheMark", checkFailedWrites},
	{"FirstWritePins", checkFirstWrite},
	{"RaisedAt", checkRaisedAt},
	{"CancelledContext", checkCancelled},

	// The domain (E4).
	{"DomainIsPinned", checkDomainPinned},
	{"DomainConfigured", checkDomainConfigured},
	{"Move", checkMove},
	{"MoveRefused", checkMoveRefused},
	{"MoveRace", checkMoveRace},

	// Arming, stops and crowds (E1, E3, E5).
	{"ArmBeforeRead", checkArmBeforeRead},
	{"StopInside", checkStopInside},
	{"StopInFinalStep", checkStopFinal},
	{"CrowdDoesNotStarveARaise", checkCrowd},
	{"Storm", checkStorm},

	// The casebook.
	{"CasebookC01_PausedHolderWritesAfterExpiry", checkC01},
	{"CasebookC45_EqualNumberOfAnotherIncarnation", checkC45},
	{"CasebookC46_ArmWithoutData", checkC46},
	{"CasebookC48_FirstUseRace", checkC48},
}
