/* Google Benchmark for C.
 *
 * SPDX-License-Identifier: MIT */
#include "gbench_shim.h"

#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

struct gbench_state {
    benchmark::State &state;
};

extern "C" void gbench_register(const char *name, gbench_function function, const void *arg) {
    const auto run = [function, arg](benchmark::State &state) {
        gbench_state one{state};
        for (auto _ : state)
            function(&one, arg);
    };
    benchmark::RegisterBenchmark(name, run)->Iterations(1)->UseManualTime()->Unit(
        benchmark::kMicrosecond);
}

extern "C" void gbench_set_seconds(gbench_state *s, double seconds) {
    s->state.SetIterationTime(seconds);
}

extern "C" void gbench_set_counter(gbench_state *s, const char *name, double value) {
    s->state.counters[name] = value;
}

extern "C" void gbench_set_label(gbench_state *s, const char *label) { s->state.SetLabel(label); }

extern "C" void gbench_fail(gbench_state *s, const char *message) {
    s->state.SkipWithError(message);
}

extern "C" void gbench_add_context(const char *key, const char *value) {
    benchmark::AddCustomContext(key, value);
}

static bool has_flag(int argc, char **argv, const char *flag) {
    for (int i = 1; i < argc; i++)
        if (std::strncmp(argv[i], flag, std::strlen(flag)) == 0)
            return true;
    return false;
}

extern "C" int gbench_has_filter(int argc, char **argv) {
    return has_flag(argc, argv, "--benchmark_filter");
}

namespace {

double counter_of(const gbench_row *row, const char *name) {
    const auto &counters =
        static_cast<const benchmark::BenchmarkReporter::Run *>(row->run)->counters;
    const auto found = counters.find(name);
    return found == counters.end() ? 0 : found->second.value;
}

/* Hands rows over to C, or to one of Google Benchmark's own displays. */
class Reporter : public benchmark::BenchmarkReporter {
  public:
    Reporter(void (*row)(const gbench_row *), benchmark::BenchmarkReporter *other)
        : row_(row), other_(other) {}

    bool ReportContext(const Context &context) override {
        return other_ ? other_->ReportContext(context) : true;
    }

    void ReportRuns(const std::vector<Run> &runs) override {
        for (const Run &run : runs) {
            failures_ += run.error_occurred;
            if (other_)
                continue;
            /* Without what Google Benchmark adds: "/iterations:1/manual_time". */
            const std::string name = run.run_name.function_name;
            const bool per_iteration = run.run_type == Run::RT_Iteration && run.iterations > 0;
            gbench_row row;
            row.name = name.c_str();
            row.aggregate = run.aggregate_name.c_str();
            row.label = run.report_label.c_str();
            row.error = run.error_occurred ? run.error_message.c_str() : "";
            row.seconds = run.real_accumulated_time /
                          (per_iteration ? static_cast<double>(run.iterations) : 1);
            row.counter = counter_of;
            row.run = &run;
            row_(&row);
        }
        if (other_)
            other_->ReportRuns(runs);
    }

    void Finalize() override {
        if (other_)
            other_->Finalize();
    }

    int failures() const { return failures_; }

  private:
    void (*row_)(const gbench_row *);
    benchmark::BenchmarkReporter *other_;
    int failures_ = 0;
};

} // namespace

extern "C" int gbench_run(int argc, char **argv, void (*row)(const gbench_row *)) {
    benchmark::BenchmarkReporter *other = nullptr;
    const bool formatted = has_flag(argc, argv, "--benchmark_format");
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return -1;
    if (formatted)
        other = benchmark::CreateDefaultDisplayReporter();
    Reporter reporter(row, other);
    benchmark::RunSpecifiedBenchmarks(&reporter);
    benchmark::Shutdown();
    return reporter.failures();
}
