package mongodb

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// task removes what means nothing any more. It may be done late, twice, or by the next owner.
type task struct {
	done any // what of the control state is then superfluous: a span, a partRef or a partGone; or nil
	run  func(ctx context.Context) error
}

const (
	// maxGone is the number of entries in the control state above which an owner waits until the documents tell themselves.
	maxGone = 256
	// maxStep is how many entries one change adds.
	maxStep = 128
	// tidyEvery is after how many changes older control documents are removed.
	tidyEvery = 64
)

// add gives the cleaner a task.
func (o *owner) add(t task) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tasks = append(o.tasks, t)
	if o.cleaning || o.released.Load() {
		return
	}
	o.cleaning = o.j.start(o.clean)
}

// start runs f until the journal is closed, and tells whether it could.
func (j *Journal) start(f func(ctx context.Context)) bool {
	ctx, end, err := j.begin(context.Background())
	if err != nil {
		return false
	}
	j.running.Go(func() {
		f(ctx)
		_ = end(nil)
	})
	return true
}

// clean does the tasks, and ends when there are none.
func (o *owner) clean(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	o.mu.Lock()
	o.stop = stop
	o.mu.Unlock()
	for {
		t, ok := o.next(ctx)
		if !ok {
			return
		}
		if o.do(ctx, t) != nil {
			pause(ctx, 500*time.Millisecond) // not to press a store that is away
		}
	}
}

// next takes a task. If there is none, the cleaner has ended.
func (o *owner) next(ctx context.Context) (task, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.tasks) == 0 || ctx.Err() != nil || o.released.Load() {
		o.cleaning, o.stop = false, nil
		return task{}, false
	}
	t := o.tasks[0]
	o.tasks = o.tasks[1:]
	return t, true
}

// do runs a task, which is put back if it fails.
func (o *owner) do(ctx context.Context, t task) error {
	tctx, cancel := context.WithTimeout(ctx, 10*o.j.timeout) // many documents
	err := t.run(tctx)
	cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.tasks = append([]task{t}, o.tasks...)
	} else if t.done != nil {
		o.cleaned[t.done] = struct{}{}
	}
	return err
}

// makeRoom helps the cleaner if the control state has become large.
func (o *owner) makeRoom(ctx context.Context) error {
	for {
		o.mu.Lock()
		if len(o.ctl.Gone)+len(o.ctl.Parts)+len(o.ctl.GoneParts)-len(o.cleaned) < maxGone || len(o.tasks) == 0 {
			o.mu.Unlock()
			return nil
		}
		t := o.tasks[0]
		o.tasks = o.tasks[1:]
		o.mu.Unlock()
		if err := o.do(ctx, t); err != nil {
			return unknown(err)
		}
	}
}

// isCleaned tells whether an entry of the control state is superfluous. o.mu is held.
func (o *owner) isCleaned(entry any) bool {
	_, ok := o.cleaned[entry]
	return ok
}

// changed is called after the control state v was stored.
func (o *owner) changed(v int64) {
	o.mu.Lock()
	listed := map[any]bool{}
	for _, s := range o.ctl.Gone {
		listed[s] = true
	}
	for _, p := range o.ctl.Parts {
		listed[p] = true
	}
	for _, p := range o.ctl.GoneParts {
		listed[p] = true
	}
	for done := range o.cleaned {
		if !listed[done] {
			delete(o.cleaned, done)
		}
	}
	o.changes++
	tidy := o.changes%tidyEvery == 0
	o.mu.Unlock()
	if tidy {
		o.add(o.oldControls(v))
	}
}

// delete removes documents.
func (o *owner) delete(ctx context.Context, c *mongo.Collection, filter bson.D) error {
	_, err := c.DeleteMany(ctx, filter)
	return classify(err)
}

// earlier removes what is left of the stream before it was dropped, and parts that never became valid.
func (o *owner) earlier() task {
	return task{run: func(ctx context.Context) error {
		c, _, pos := o.state()
		begin, since := c.Begin, c.Since
		if h, err := o.j.head(ctx, o.name, false); err == nil && h.ctl != nil && h.ctl.Dropped && h.uid == o.acquired.UID {
			c, begin, since, pos = h.ctl, h.ctl.Begin, h.ctl.Since, h.tip.pos
		}
		if err := o.delete(ctx, o.j.records, removable(o.name, c, pos, bson.D{{Key: "$lt", Value: begin}})); err != nil {
			return err
		}
		if err := o.delete(ctx, o.j.parts, bson.D{{Key: "s", Value: o.name}, {Key: "v", Value: bson.D{{Key: "$gt", Value: int64(0)}, {Key: "$lt", Value: since}}}}); err != nil {
			return err
		}
		var refs []string
		for _, p := range c.Parts {
			refs = append(refs, p.ID)
		}
		return o.delete(ctx, o.j.parts, bson.D{
			{Key: "s", Value: o.name}, {Key: "v", Value: int64(0)}, {Key: "e", Value: bson.D{{Key: "$lt", Value: int64(o.acquired.Epoch)}}},
			{Key: "_id", Value: bson.D{{Key: "$nin", Value: append(refs, "")}}},
		})
	}}
}

// state returns what is known of the control state, and of the record lane's end.
func (o *owner) state() (*control, int64, int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ctl, o.ctlV, o.head.pos
}

// removable matches the records with a first seq like first whose documents may go: not the last one, and not one whose number could be
// taken by what is late.
func removable(stream string, c *control, pos int64, first bson.D) bson.D {
	return bson.D{
		{Key: "s", Value: stream}, {Key: "f", Value: first},
		{Key: "p", Value: bson.D{{Key: "$lt", Value: pos}, {Key: "$nin", Value: c.keptPositions()}}},
	}
}

// goneBodies removes the bodies of a span, and the documents of which nothing is left.
func (o *owner) goneBodies(s span) task {
	return task{done: s, run: func(ctx context.Context) error {
		inside := bson.D{{Key: "$gte", Value: s.From}, {Key: "$lte", Value: s.To}}
		if _, err := o.j.records.UpdateMany(ctx, bson.D{
			{Key: "s", Value: o.name}, {Key: "f", Value: inside}, {Key: "l", Value: bson.D{{Key: "$lte", Value: s.To}}},
			{Key: "b", Value: bson.D{{Key: "$exists", Value: true}}},
		}, bson.D{{Key: "$unset", Value: bson.D{{Key: "b", Value: ""}}}}); err != nil {
			return classify(err)
		}
		c, _, pos := o.state()
		if s.From >= c.Low {
			return nil
		}
		return o.delete(ctx, o.j.records, append(removable(o.name, c, pos, inside),
			bson.E{Key: "l", Value: bson.D{{Key: "$lt", Value: c.Low}}}, bson.E{Key: "b", Value: bson.D{{Key: "$exists", Value: false}}}))
	}}
}

// goneMetas removes the metas below the lowest that is kept, and the documents of which nothing is left.
func (o *owner) goneMetas() task {
	return task{run: func(ctx context.Context) error {
		c, _, pos := o.state()
		below := bson.D{{Key: "$lt", Value: c.Low}}
		dead := append(removable(o.name, c, pos, below), bson.E{Key: "l", Value: below}, bson.E{Key: "b", Value: bson.D{{Key: "$exists", Value: false}}})
		if err := o.delete(ctx, o.j.records, dead); err != nil {
			return err
		}
		_, err := o.j.records.UpdateMany(ctx, bson.D{
			{Key: "s", Value: o.name}, {Key: "f", Value: below}, {Key: "l", Value: below}, {Key: "m", Value: bson.D{{Key: "$ne", Value: nil}}},
		}, bson.D{{Key: "$set", Value: bson.D{{Key: "m", Value: nil}}}})
		return classify(err)
	}}
}

// writtenPart makes a part's document tell itself that it is valid, and removes those that it replaces.
func (o *owner) writtenPart(p partRef) task {
	return task{done: p, run: func(ctx context.Context) error {
		_, err := o.j.parts.UpdateOne(ctx, bson.D{{Key: "_id", Value: p.ID}}, bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: p.V}}}})
		if err != nil {
			return classify(err)
		}
		return o.gonePart(partGone{p.Name, p.V}).run(ctx)
	}}
}

// gonePart removes a deleted part's documents.
func (o *owner) gonePart(p partGone) task {
	return task{done: p, run: func(ctx context.Context) error {
		return o.delete(ctx, o.j.parts, bson.D{
			{Key: "s", Value: o.name}, {Key: "n", Value: p.Name}, {Key: "v", Value: bson.D{{Key: "$gt", Value: int64(0)}, {Key: "$lt", Value: p.V}}},
		})
	}}
}

// oldControls removes control documents that are superseded by v.
func (o *owner) oldControls(v int64) task {
	return task{run: func(ctx context.Context) error {
		c, _, _ := o.state()
		return o.delete(ctx, o.j.control, bson.D{
			{Key: "s", Value: o.name}, {Key: "t", Value: bson.D{{Key: "$exists", Value: false}}},
			{Key: "v", Value: bson.D{{Key: "$lt", Value: v}, {Key: "$nin", Value: c.keptControls()}}},
		})
	}}
}
