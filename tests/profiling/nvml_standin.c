/* A stand-in for libnvidia-ml.so.1: NVML's C interface over a machine described in a text file.
 *
 * The file is named by NVML_STANDIN and read at nvmlInit. One fact a line:
 *   gpu INDEX BUS_ID NAME             a GPU; indices from 0, without gaps
 *   link INDEX LINK BUS_ID TYPE       an active NVLink; TYPE 0 leads to a GPU, 2 to an NVSwitch
 *   ancestor A B LEVEL                what joins two GPUs, NVML's number (10 one PCIe switch; 50 if not said)
 *   mig INDEX COUNT                   MIG mode is on, with COUNT instances
 *   set INDEX WHAT VALUE              a counter's value; WHAT as in VALUES below
 *   fail FUNCTION INDEX CODE AFTER    from call AFTER+1 on, FUNCTION returns CODE for that GPU;
 *                                     INDEX -1: for all
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GPUS 16
#define MAX_LINKS 18
#define MAX_FAILS 32
#define OK 0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6

typedef int ret_t;
typedef struct gpu *dev_t_;

enum { UTIL, MEM_USED, MEM_TOTAL, PCIE_TX, PCIE_RX, NVL_TX, NVL_RX, CLOCK, POWER, HEAT, THROTTLE, N };
static const char *VALUES[N] = {"util",   "mem_used", "mem_total", "pcie_tx", "pcie_rx", "nvl_tx",
                                "nvl_rx", "clock",    "power",     "heat",    "throttle"};

struct link { int type; char end[32]; };
struct gpu {
    int index, instance, mig, count, links;
    char bus[32], name[64], uuid[64];
    unsigned long long value[N];
    struct link link[MAX_LINKS];
};
struct fail { char function[64]; int index, code, after; };

static struct gpu gpus[MAX_GPUS], slices[MAX_GPUS][8];
static int n_gpus, n_fails, ancestor[MAX_GPUS][MAX_GPUS];
static struct fail fails[MAX_FAILS];

/* nvmlPciInfo_t, nvmlFieldValue_t, nvmlMemory_t, nvmlUtilization_t */
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
struct field {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type;
    int ret;
    union { double d; unsigned long long u; } value;
};
struct memory { unsigned long long total, free, used; };
struct usage { unsigned gpu, memory; };

static int failure(const char *function, int index) {
    for (int i = 0; i < n_fails; i++) {
        struct fail *f = &fails[i];
        int here = f->index == -1 || f->index == index;
        if (strcmp(f->function, function) == 0 && here && f->after-- <= 0) {
            f->after = 0;
            return f->code;
        }
    }
    return OK;
}
#define REFUSE(index)                          \
    do {                                       \
        int code_ = failure(__func__, index);  \
        if (code_) return code_;               \
    } while (0)

static void slice(struct gpu *g, int count) {
    g->mig = 1, g->count = count;
    for (int i = 0; i < count; i++) {
        struct gpu *s = &slices[g->index][i];
        *s = *g;
        s->instance = i;
        snprintf(s->uuid, sizeof s->uuid, "MIG-%04d-%d", g->index, i);
        snprintf(s->name, sizeof s->name, "Stand-in MIG 1g");
        s->value[MEM_TOTAL] = g->value[MEM_TOTAL] / 7;
    }
}

static void set(int index, const char *what, unsigned long long value) {
    for (int i = 0; i < N; i++)
        if (strcmp(what, VALUES[i]) == 0) gpus[index].value[i] = value;
}

static void line(const char *text) {
    char a[64], b[64];
    int i, j, k, l;
    unsigned long long v;
    if (sscanf(text, "gpu %d %31s %63[^\n]", &i, a, b) == 3) {
        struct gpu *g = &gpus[i];
        g->index = i, g->instance = -1, n_gpus = i + 1;
        strcpy(g->bus, a), strcpy(g->name, b);
        snprintf(g->uuid, sizeof g->uuid, "GPU-%04d", i);
        g->value[MEM_TOTAL] = 16ull << 30;
    } else if (sscanf(text, "link %d %d %31s %d", &i, &j, a, &k) == 4) {
        gpus[i].link[j].type = k, gpus[i].links = j + 1;
        strcpy(gpus[i].link[j].end, a);
    } else if (sscanf(text, "ancestor %d %d %d", &i, &j, &k) == 3) {
        ancestor[i][j] = ancestor[j][i] = k;
    } else if (sscanf(text, "mig %d %d", &i, &j) == 2) {
        slice(&gpus[i], j);
    } else if (sscanf(text, "set %d %63s %llu", &i, a, &v) == 3) {
        set(i, a, v);
    } else if (sscanf(text, "fail %63s %d %d %d", a, &i, &k, &l) == 4) {
        struct fail *f = &fails[n_fails++];
        strcpy(f->function, a), f->index = i, f->code = k, f->after = l;
    }
}

ret_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    char text[256];
    const char *path = getenv("NVML_STANDIN");
    FILE *file = path ? fopen(path, "r") : NULL;
    n_gpus = n_fails = 0;
    memset(gpus, 0, sizeof gpus), memset(ancestor, 0, sizeof ancestor);
    while (file && fgets(text, sizeof text, file)) line(text);
    if (file) fclose(file);
    REFUSE(-1);
    return OK;
}
ret_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
ret_t nvmlShutdown(void) { REFUSE(-1); return OK; }

/* pynvml has words of its own for the codes of its time; it asks for those of any other. */
const char *nvmlErrorString(int code) { (void)code; return "an error of the stand-in"; }

static ret_t text(char *to, unsigned size, const char *from) {
    snprintf(to, size, "%s", from);
    return OK;
}
ret_t nvmlSystemGetDriverVersion(char *to, unsigned size) { REFUSE(-1); return text(to, size, "570.1"); }
ret_t nvmlDeviceGetCount_v2(unsigned *count) { REFUSE(-1); *count = n_gpus; return OK; }
ret_t nvmlDeviceGetHandleByIndex_v2(unsigned i, dev_t_ *d) {
    REFUSE((int)i);
    if ((int)i >= n_gpus) return INVALID_ARGUMENT;
    *d = &gpus[i];
    return OK;
}
ret_t nvmlDeviceGetName(dev_t_ d, char *to, unsigned size) { REFUSE(d->index); return text(to, size, d->name); }
ret_t nvmlDeviceGetUUID(dev_t_ d, char *to, unsigned size) { REFUSE(d->index); return text(to, size, d->uuid); }
ret_t nvmlDeviceGetPciInfo_v3(dev_t_ d, struct pci *p) {
    REFUSE(d->index);
    memset(p, 0, sizeof *p);
    return text(p->bus_id, sizeof p->bus_id, d->bus);
}
ret_t nvmlDeviceGetTopologyCommonAncestor(dev_t_ a, dev_t_ b, unsigned *level) {
    REFUSE(a->index);
    *level = ancestor[a->index][b->index] ? ancestor[a->index][b->index] : 50;
    return OK;
}

ret_t nvmlDeviceGetNvLinkState(dev_t_ d, unsigned link, unsigned *active) {
    REFUSE(d->index);
    if (!d->links) return NOT_SUPPORTED;
    if (link >= MAX_LINKS) return INVALID_ARGUMENT;
    *active = (int)link < d->links;
    return OK;
}
ret_t nvmlDeviceGetNvLinkRemoteDeviceType(dev_t_ d, unsigned link, unsigned *type) {
    REFUSE(d->index);
    *type = d->link[link].type;
    return OK;
}
ret_t nvmlDeviceGetNvLinkRemotePciInfo_v2(dev_t_ d, unsigned link, struct pci *p) {
    REFUSE(d->index);
    memset(p, 0, sizeof *p);
    return text(p->bus_id, sizeof p->bus_id, d->link[link].end);
}

ret_t nvmlDeviceGetMigMode(dev_t_ d, unsigned *now, unsigned *pending) {
    REFUSE(d->index);
    *now = *pending = d->mig;
    return OK;
}
ret_t nvmlDeviceGetMaxMigDeviceCount(dev_t_ d, unsigned *count) { REFUSE(d->index); *count = d->mig ? 7 : 0; return OK; }
ret_t nvmlDeviceGetMigDeviceHandleByIndex(dev_t_ d, unsigned i, dev_t_ *out) {
    REFUSE(d->index);
    if ((int)i >= d->count) return NOT_FOUND;
    *out = &slices[d->index][i];
    return OK;
}

ret_t nvmlDeviceGetMemoryInfo(dev_t_ d, struct memory *m) {
    REFUSE(d->index);
    m->total = d->value[MEM_TOTAL], m->used = d->value[MEM_USED], m->free = m->total - m->used;
    return OK;
}
ret_t nvmlDeviceGetUtilizationRates(dev_t_ d, struct usage *u) {
    REFUSE(d->index);
    if (d->mig) return NOT_SUPPORTED; /* as a real GPU in MIG mode says */
    u->gpu = d->value[UTIL], u->memory = 0;
    return OK;
}
static ret_t number(dev_t_ d, int what, unsigned *out) { *out = d->value[what]; return OK; }
ret_t nvmlDeviceGetPcieThroughput(dev_t_ d, unsigned counter, unsigned *kib) {
    REFUSE(d->index);
    return number(d, counter ? PCIE_RX : PCIE_TX, kib);
}
ret_t nvmlDeviceGetClockInfo(dev_t_ d, unsigned type, unsigned *mhz) {
    REFUSE(d->index);
    return type == 1 ? number(d, CLOCK, mhz) : INVALID_ARGUMENT;
}
ret_t nvmlDeviceGetPowerUsage(dev_t_ d, unsigned *mw) { REFUSE(d->index); return number(d, POWER, mw); }
ret_t nvmlDeviceGetTemperature(dev_t_ d, unsigned s, unsigned *c) { (void)s; REFUSE(d->index); return number(d, HEAT, c); }
#ifndef OLD_DRIVER
ret_t nvmlDeviceGetCurrentClocksEventReasons(dev_t_ d, unsigned long long *r) { REFUSE(d->index); *r = d->value[THROTTLE]; return OK; }
#endif
ret_t nvmlDeviceGetCurrentClocksThrottleReasons(dev_t_ d, unsigned long long *r) { REFUSE(d->index); *r = d->value[THROTTLE]; return OK; }

/* The NVLink counters grow by their value at each reading. */
ret_t nvmlDeviceGetFieldValues(dev_t_ d, int count, struct field *f) {
    static unsigned long long readings;
    REFUSE(d->index);
    readings++;
    for (int i = 0; i < count; i++) {
        int what = f[i].id == 138 ? NVL_TX : f[i].id == 139 ? NVL_RX : -1;
        f[i].ret = what < 0 || !d->links ? NOT_SUPPORTED : OK;
        f[i].type = 3;
        if (f[i].ret == OK) f[i].value.u = d->value[what] * readings;
    }
    return OK;
}
