// SPDX-License-Identifier: MIT OR Apache-2.0
// The factory that ONNX Runtime finds in the library: its devices, and what belongs to each.
#include <memory>
#include <string>
#include <vector>

#include "engine/hip.h"
#include "engine/memory.h"
#include "engine/stream.h"
#include "fmha_rocm.h"
#include "provider.h"

namespace fmha::onnxruntime {
namespace {

constexpr char kDeviceKey[] = "hip_device";  // in the metadata of a device: HIP's number

struct Factory : OrtEpFactory {
  Factory();

  Places places;
};

Factory& self(const OrtEpFactory* factory) {
  return *static_cast<Factory*>(const_cast<OrtEpFactory*>(factory));
}

// A machine without a card, or without HIP, has no devices. The log says why.
Places find_places() {
  Places places;
  try {
    int count = 0;
    const int error = hip().get_device_count(&count);
    if (error != 0) (void)hip().get_last_error();
    for (int device = 0; device < count && error == 0; device++) places.emplace_back(device);
    if (places.empty()) log(ORT_LOGGING_LEVEL_WARNING, "HIP has no device");
  } catch (const std::exception& error) {
    log(ORT_LOGGING_LEVEL_WARNING, std::string("no device: ") + error.what());
  }
  return places;
}

// HIP's number of a card that ONNX Runtime has found; -1 if it does not tell.
int number_of(const OrtHardwareDevice* device) {
  const char* bus = api().GetKeyValue(api().HardwareDevice_Metadata(device), "pci_bus_id");
  int number = -1;
  if (bus == nullptr || hip().device_get_by_pci_bus_id(&number, bus) != 0) return -1;
  return number;
}

bool is_card(const OrtHardwareDevice* device) {
  return api().HardwareDevice_Type(device) == OrtHardwareDeviceType_GPU &&
         api().HardwareDevice_VendorId(device) == kVendorAmd;
}

// The hardware that stands for each device of HIP: its card; in the order of their numbers if none has its
// bus's name; and the CPU for what ONNX Runtime does not find, as the software device and cards in
// containers.
std::vector<const OrtHardwareDevice*> hardware_of(const Places& places,
                                                  const OrtHardwareDevice* const* devices, size_t count) {
  std::vector<const OrtHardwareDevice*> hardware(places.size());
  std::vector<const OrtHardwareDevice*> unnamed;
  const OrtHardwareDevice* cpu = nullptr;
  for (size_t i = 0; i < count; i++) {
    if (api().HardwareDevice_Type(devices[i]) == OrtHardwareDeviceType_CPU) cpu = devices[i];
    if (!is_card(devices[i])) continue;
    const int number = number_of(devices[i]);
    if (number >= 0 && static_cast<size_t>(number) < hardware.size()) {
      hardware[static_cast<size_t>(number)] = devices[i];
    } else {
      unnamed.push_back(devices[i]);
    }
  }
  size_t next = 0;
  for (auto& device : hardware) {
    if (device == nullptr) device = next < unnamed.size() ? unnamed[next++] : cpu;
  }
  return hardware;
}

OrtEpDevice* make_device(Factory& factory, const Place& place, const OrtHardwareDevice* hardware) {
  OrtKeyValuePairs* pairs = nullptr;
  api().CreateKeyValuePairs(&pairs);
  const std::unique_ptr<OrtKeyValuePairs, void (*)(OrtKeyValuePairs*)> metadata(pairs,
                                                                                api().ReleaseKeyValuePairs);
  api().AddKeyValuePair(pairs, kDeviceKey, std::to_string(place.device()).c_str());
  OrtEpDevice* device = nullptr;
  check(ep_api().CreateEpDevice(&factory, hardware, pairs, nullptr, &device));
  check(ep_api().EpDevice_AddAllocatorInfo(device, place.memory()));
  check(ep_api().EpDevice_AddAllocatorInfo(device, place.pinned()));
  return device;
}

OrtStatus* get_supported_devices(OrtEpFactory* factory, const OrtHardwareDevice* const* devices, size_t count,
                                 OrtEpDevice** found, size_t most, size_t* found_count) noexcept {
  return guarded([&] {
    Factory& that = self(factory);
    *found_count = 0;
    if (that.places.empty()) return;
    const auto hardware = hardware_of(that.places, devices, count);
    for (size_t i = 0; i < hardware.size() && *found_count < most; i++) {
      if (hardware[i] == nullptr) continue;
      found[(*found_count)++] = make_device(that, that.places[i], hardware[i]);
    }
  });
}

OrtStatus* create_provider(OrtEpFactory* factory, const OrtHardwareDevice* const* /*devices*/,
                           const OrtKeyValuePairs* const* metadata, size_t count,
                           const OrtSessionOptions* /*options*/, const OrtLogger* /*logger*/,
                           OrtEp** provider) noexcept {
  return guarded([&] {
    if (count != 1) fail(ORT_INVALID_ARGUMENT, "devices of a session: got %zu, expected 1", count);
    const char* text = api().GetKeyValue(metadata[0], kDeviceKey);
    const size_t number = text != nullptr ? std::stoul(text) : 0;
    const Places& places = self(factory).places;
    if (number >= places.size()) {
      fail(ORT_INVALID_ARGUMENT, "%s: got %zu, expected less than %zu, the devices of HIP", kDeviceKey,
           number, places.size());
    }
    *provider = make_provider(places[number]);
  });
}

OrtStatus* create_allocator(OrtEpFactory* factory, const OrtMemoryInfo* memory,
                            const OrtKeyValuePairs* /*options*/, OrtAllocator** allocator) noexcept {
  return guarded([&] {
    int number = 0;
    if (memory != nullptr) check(api().MemoryInfoGetId(memory, &number));
    *allocator = make_allocator(self(factory).places.at(static_cast<size_t>(number)), memory);
  });
}

OrtStatus* create_stream(OrtEpFactory* factory, const OrtMemoryDevice* memory,
                         const OrtKeyValuePairs* /*options*/, OrtSyncStreamImpl** stream) noexcept {
  return guarded([&] {
    const int device = device_of(memory);
    *stream = device >= 0 ? make_stream(self(factory).places.at(static_cast<size_t>(device))) : nullptr;
  });
}

Factory::Factory() : OrtEpFactory{}, places(find_places()) {
  ort_version_supported = kApiVersion;
  GetName = [](const OrtEpFactory*) noexcept { return kProvider; };
  GetVendor = [](const OrtEpFactory*) noexcept { return "fmha_rocm"; };
  GetVendorId = [](const OrtEpFactory*) noexcept { return kVendorAmd; };
  GetVersion = [](const OrtEpFactory*) noexcept { return ::fmha_version(); };
  GetSupportedDevices = get_supported_devices;
  CreateEp = create_provider;
  ReleaseEp = [](OrtEpFactory*, OrtEp* provider) noexcept { release_provider(provider); };
  CreateAllocator = create_allocator;
  ReleaseAllocator = [](OrtEpFactory*, OrtAllocator* allocator) noexcept { release_allocator(allocator); };
  CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** transfer) noexcept {
    return guarded([&] { *transfer = make_data_transfer(); });
  };
  IsStreamAware = [](const OrtEpFactory*) noexcept { return true; };
  CreateSyncStreamForDevice = create_stream;
}

}  // namespace
}  // namespace fmha::onnxruntime

extern "C" {

__attribute__((visibility("default"))) OrtStatus* CreateEpFactories(const char* /*name*/,
                                                                    const OrtApiBase* base,
                                                                    const OrtLogger* logger,
                                                                    OrtEpFactory** factories, size_t most,
                                                                    size_t* count) {
  using namespace fmha::onnxruntime;
  if (!set_api(*base, logger)) {
    // Version 1 had these functions already.
    const std::string message = std::string("libfmha_onnxruntime: got ONNX Runtime ") +
                                base->GetVersionString() + ", expected 1." + std::to_string(kApiVersion) +
                                " or later";
    return base->GetApi(1)->CreateStatus(ORT_NOT_IMPLEMENTED, message.c_str());
  }
  return guarded([&] {
    if (most < 1) fail(ORT_INVALID_ARGUMENT, "max_factories: got 0, expected at least 1");
    factories[0] = new Factory();
    *count = 1;
  });
}

__attribute__((visibility("default"))) OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  delete static_cast<fmha::onnxruntime::Factory*>(factory);
  return nullptr;
}
}
