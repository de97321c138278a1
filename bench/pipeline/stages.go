package pipeline

// The stages by which profiles are labelled; see [profile.Do].
const (
	stageProduce = "produce"
	stageSource  = "source"
	stagePop     = "pop"
	stageStore   = "store"
	stageHandle  = "handle"
	stageWork    = "work"
	stageRead    = "read"
	stageMerge   = "merge"
	stageSync    = "sync"
)
